// How entries of Grok look in Pi's terminal.
import type { Json, Renderer, Theme } from "./pi.ts";

const CONTROL = /\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x09\x0b-\x1f\x7f-\x9f]/g; // text must not steer the terminal

export const renderTool: Renderer = ({ data }, { expanded }, theme) => component(() => tool(data, expanded, theme));

export const renderTurn: Renderer = ({ data }, { expanded }, theme) => component((width) => [
  theme.fg("accent", `Grok went on by itself: ${line(data.reason, width)}`),
  ...(data.tools ?? []).flatMap((call: Json) => tool(call, expanded, theme)),
  ...clean(data.text).split("\n").flatMap((text) => text.match(new RegExp(`.{1,${Math.max(width, 1)}}`, "gu")) ?? [""]),
]);

function tool(data: Json, expanded: boolean, theme: Theme): string[] {
  const { tool, subagent, n, input, status, output, diff, durationMs, denyReason, hookContext } = data;
  const label = `[grok ${subagent ? `${line(subagent, 40)} › ` : ""}${line(tool, 60)}] #${n} `;
  const text = line(typeof input === "string" ? input : JSON.stringify(input ?? {}), 100);
  const end = ` ${status}${durationMs >= 100 ? ` ${(durationMs / 1000).toFixed(1)} s` : ""}`;
  const head = theme.fg("toolTitle", label) + theme.fg("muted", text) + theme.fg(status === "completed" ? "dim" : "error", end);
  const body = expanded ? clean(diff || output).slice(0, 600).split("\n") : [];
  const color = (row: string) => (diff && row[0] === "+" ? "success" : diff && row[0] === "-" ? "error" : "muted");
  const reasons = [denyReason, expanded && hookContext].filter(Boolean).map((reason) => theme.fg("error", `  ${line(reason, 160)}`));
  return [head, ...reasons, ...body.map((row) => theme.fg(color(row), `  ${row}`))];
}

function component(render: (width: number) => string[]) { return { render, invalidate() {} }; }

function clean(text: unknown): string { return String(text ?? "").replaceAll("\t", "  ").replace(CONTROL, ""); }

function line(text: unknown, limit: number): string {
  const flat = clean(text).replace(/\s+/g, " ");
  return flat.length > limit ? `${flat.slice(0, limit)}…` : flat;
}
