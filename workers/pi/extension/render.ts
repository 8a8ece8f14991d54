// How entries of Grok look in Pi's terminal.
import type { Component, EntryRenderer, Json, Theme } from "./pi.ts";

export const renderTool: EntryRenderer = (entry, { expanded }, theme) => lines(tool(entry.data, expanded, theme));

export const renderTurn: EntryRenderer = ({ data }, { expanded }, theme) => lines([
  theme.fg("accent", plain(`Grok, by itself: ${data.reason}`)),
  ...(data.tools ?? []).flatMap((call: Json) => tool(call, expanded, theme)),
  ...plain(data.text ?? "").split("\n"),
]);

function tool(data: Json, expanded: boolean, theme: Theme): string[] {
  const input = typeof data.input === "string" ? data.input : JSON.stringify(data.input ?? {});
  const label = data.subagent ? `${data.subagent} › ${data.tool}` : data.tool;
  const time = data.durationMs >= 1000 ? ` ${(data.durationMs / 1000).toFixed(1)} s` : "";
  const status = data.status === "completed" ? "" : ` ${data.status}`;
  const head = theme.fg("toolTitle", plain(`[grok ${label}] #${data.n}`)) + " " + theme.fg("muted", one(input, 100)) + theme.fg(status ? "error" : "dim", status + time);
  const denied = data.denyReason ? [theme.fg("error", `  ${one(data.denyReason, 160)}`)] : [];
  if (!expanded) return [head, ...denied];
  const body = cut(plain(data.diff || data.output || ""), 600).split("\n").map((line) => `  ${line}`);
  const context = data.hookContext ? [theme.fg("muted", `  ${one(data.hookContext, 160)}`)] : [];
  return [head, ...denied, ...body.map((line) => theme.fg(diffColor(data.diff, line), line)), ...context];
}

function diffColor(diff: unknown, line: string): string {
  return diff && line.startsWith("  +") ? "success" : diff && line.startsWith("  -") ? "error" : "muted";
}

/** Lines as wide as the screen; text that would steer the terminal is left out. */
function lines(content: string[]): Component {
  return { render: (width) => content.flatMap((line) => wrap(line, width)), invalidate() {} };
}

function wrap(line: string, width: number): string[] {
  if (line.length <= width || line.includes("\x1b")) return [line]; // coloured lines are cut by Pi
  return line.match(new RegExp(`.{1,${Math.max(width, 1)}}`, "gu")) ?? [line];
}

function plain(text: string): string {
  return String(text).replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "").replace(/\t/g, "  ").replace(/[\x00-\x09\x0b-\x1f\x7f-\x9f]/g, "");
}

function one(text: string, limit: number): string { return cut(plain(text.replace(/\s+/g, " ")), limit); }

function cut(text: string, limit: number): string { return text.length > limit ? `${text.slice(0, limit)}…` : text; }
