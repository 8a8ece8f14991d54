// What is used of Pi's API, the same in Pi 0.73 and 1.x. Types only, and no import: Pi has two package names.
export type Json = Record<string, any>;
type Dialog<T> = (title: string, content: any, more: { signal: AbortSignal }) => Promise<T>;
export interface Context {
  mode?: string; hasUI: boolean; cwd: string; model?: Json; isIdle(): boolean;
  sessionManager: { getSessionId(): string; getBranch(): Json[]; getEntries(): Json[] };
  ui: {
    select: Dialog<string | undefined>; confirm: Dialog<boolean>; input: Dialog<string | undefined>; editor(title: string, prefill?: string): Promise<string | undefined>;
    notify(message: string, level: string): void; setStatus(key: string, text?: string): void; setWidget(key: string, lines?: string[]): void;
  };
}
export interface Theme { fg(color: string, text: string): string }
export type Renderer = (entry: Json, options: { expanded: boolean }, theme: Theme) => { render(width: number): string[]; invalidate(): void };
export interface Pi {
  on(event: string, handler: (event: Json, ctx: Context) => unknown): void;
  registerProvider(name: string, config: Json): void;
  registerCommand(name: string, command: Json): void;
  registerEntryRenderer?(type: string, renderer: Renderer): void; // since 0.80.4
  appendEntry(type: string, data: Json): void;
  sendMessage(message: Json, options: Json): void;
  getActiveTools(): string[]; getAllTools(): Json[]; getThinkingLevel(): string | undefined;
}
