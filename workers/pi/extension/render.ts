// Entries of Grok in Pi's terminal: lines that the gateway has laid out (docs/pi-protocol.md).
import type { Json } from "./settings.ts";

export function renderEntry({ data }: Json, { expanded }: { expanded: boolean }, theme: Json) {
  const lines: Json[] = (data.lines ?? []).filter((line: Json) => expanded || !line.expanded);
  const paint = ([color, text]: [string, string]) => theme.fg(color, text);
  return {
    render(width: number): string[] {
      const wrap = (text: string) => text.match(new RegExp(`.{1,${Math.max(width, 1)}}`, "gu")) ?? [""];
      return lines.flatMap(({ spans, text }) => spans?.map(paint).join("") ?? wrap(text));
    },
    invalidate() {},
  };
}
