// The parts of Pi's extension API that are used here, the same in Pi 0.73 and 1.x. Types only: an import from
// Pi's packages would tie the extension to one of their two names.
export type Json = Record<string, any>;
export interface Ui {
  select(title: string, options: string[], more: { signal: AbortSignal }): Promise<string | undefined>;
  confirm(title: string, message: string, more: { signal: AbortSignal }): Promise<boolean>;
  input(title: string, placeholder: string | undefined, more: { signal: AbortSignal }): Promise<string | undefined>;
  editor(title: string, prefill?: string): Promise<string | undefined>;
  notify(message: string, level: string): void;
  setStatus(key: string, text: string | undefined): void;
  setWidget(key: string, lines: string[] | undefined): void;
}
export interface Context {
  mode?: string;
  hasUI: boolean;
  cwd: string;
  model?: { id: string; provider: string };
  ui: Ui;
  isIdle(): boolean;
  sessionManager: { getSessionId(): string; getBranch(): Json[]; getEntries(): Json[] };
}
export interface Component { render(width: number): string[]; invalidate(): void }
export interface Theme { fg(color: string, text: string): string }
export type EntryRenderer = (entry: Json, options: { expanded: boolean }, theme: Theme) => Component;
export interface Pi {
  on(event: string, handler: (event: Json, ctx: Context) => unknown): void;
  registerProvider?(name: string, config: Json): void;
  registerCommand(name: string, command: Json): void;
  registerEntryRenderer?(type: string, renderer: EntryRenderer): void; // since 0.80.4
  appendEntry(type: string, data: Json): void;
  sendMessage(message: Json, options: Json): void;
  getActiveTools(): string[];
  getAllTools(): Json[];
  getThinkingLevel(): string | undefined;
}
