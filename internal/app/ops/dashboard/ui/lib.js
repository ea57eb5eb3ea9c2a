// Elements and formats that all pages share.
import { h } from "./vendor/preact.mjs";
import { useState, useEffect, useLayoutEffect, useRef } from "./vendor/hooks.mjs";
import htm from "./vendor/htm.mjs";

export const html = htm.bind(h);
export { useState, useEffect, useLayoutEffect, useRef };

// Formats. A value that is missing is a dash.
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const missing = v => v === undefined || v === null || Number.isNaN(v);
export const int = v => (missing(v) ? "–" : whole.format(v));
export const num = v => (missing(v) ? "–" : Math.abs(v) < 1000 && Number.isInteger(v) ? String(v) : compact.format(v));
export const rate = v => (missing(v) ? "–" : `${num(Math.abs(v) < 0.005 ? 0 : v)}/s`);
export const percent = v => (missing(v) ? "–" : `${(100 * v).toFixed(v < 0.1 ? 1 : 0)} %`);
export function bytes(v) {
  if (missing(v)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  for (v = Number(v); Math.abs(v) >= 1024 && i < units.length - 1; i++) v /= 1024;
  return `${v >= 100 || i === 0 ? v.toFixed(0) : v.toPrecision(3)} ${units[i]}`;
}
export function seconds(s) {
  if (missing(s)) return "–";
  if (s < 0.001) return `${(1e6 * s).toFixed(0)} µs`;
  if (s < 1) return `${(1e3 * s).toPrecision(3)} ms`;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : s.toFixed(0)} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} min ${Math.floor(s % 60)} s`;
  return m < 1440 ? `${Math.floor(m / 60)} h ${m % 60} min` : `${Math.floor(m / 1440)} d ${Math.floor((m % 1440) / 60)} h`;
}
// time is null for a time that is missing or Go's zero time.
export const time = t => (t && !t.startsWith("0001-") ? new Date(t) : null);
export const clock = d => d.toLocaleTimeString("en-GB");
const stamp = d => `${d.getFullYear()}-${String(d.getMonth() + 1).padStart(2, "0")}-${String(d.getDate()).padStart(2, "0")} ${clock(d)}`;

// Time shows a time of day, with the date where it is another day.
export function Time({ at }) {
  const d = time(at);
  if (!d) return html`<span>–</span>`;
  const today = d.toDateString() === new Date().toDateString();
  return html`<time datetime=${at} title=${d.toISOString()}>${today ? clock(d) : stamp(d)}</time>`;
}
// ago is the time since at, in words.
export const ago = at => (time(at) ? `${seconds(Math.max(0, (Date.now() - time(at)) / 1000))} ago` : "–");

// link makes the address of a page of its parts.
export const link = (...parts) => "#/" + parts.map(encodeURIComponent).join("/");
export const Link = ({ to, children }) => html`<a href=${link(...to)}>${children}</a>`;

// Each state has a class for its color and a sign, so that color is not the only mark.
const kinds = {
  good: ["served", "serving", "done", "ok", "running", "full"],
  busy: ["replaying", "waiting", "queued", "scheduled", "draining", "info", "skipped", "warn", "paused", "reduced", "delayed", "retrying", "pausing", "host"],
  bad: ["lost", "failed", "error", "dead", "ending", "emergency"],
};
export function kindOf(state) {
  const first = String(state).split(/[ :,(]/)[0].toLowerCase();
  for (const [kind, words] of Object.entries(kinds)) if (words.includes(first)) return kind;
  return first === "warn" ? "busy" : "plain";
}
const signs = { good: "●", busy: "◐", bad: "▲", plain: "○" };
export const State = ({ of, text }) =>
  html`<span class=${"state " + kindOf(of)}><span aria-hidden="true">${signs[kindOf(of)]} </span>${text || of || "unknown"}</span>`;

// Table shows rows with a caption. A column is {name, value(row), number, key}. The first column
// names the row. Long tables show their first rows and can be filtered.
const MOST = 300;
export function Table({ caption, columns: given, rows, empty, filter, hide }) {
  const columns = given.filter(Boolean);
  const [word, setWord] = useState("");
  if (!rows.length) return empty ? html`<${Empty}>${empty}<//>` : null;
  const text = r => JSON.stringify(r).toLowerCase();
  const found = word ? rows.filter(r => text(r).includes(word.toLowerCase())) : rows;
  const shown = found.slice(0, MOST);
  return html`
    ${filter && html`<p class="filter"><label>Filter ${filter} <input type="search" value=${word} onInput=${e => setWord(e.target.value)} /></label>
      <span> ${found.length} of ${rows.length}</span></p>`}
    <div class="scroll" tabindex="0" role="region" aria-label=${`Table: ${caption}`}>
    <table><caption class=${hide ? "quiet" : ""}>${caption}${found.length > MOST ? `, the first ${MOST} of ${found.length}` : ""}</caption>
    <thead><tr>${columns.map(c => html`<th scope="col" class=${c.number ? "n" : ""}>${c.name}</th>`)}</tr></thead>
    <tbody>${shown.map(r => html`<tr>${columns.map((c, i) =>
      i === 0 ? html`<th scope="row">${c.value(r)}</th>` : html`<td class=${c.number ? "n" : ""}>${c.value(r)}</td>`)}</tr>`)}</tbody>
    </table></div>`;
}

// Empty says what to do when there is nothing to show.
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
export const Cmd = ({ children }) => html`<code>${children}</code>`;

// Facts are names with values.
export const Facts = ({ of }) => html`<dl class="facts">${of.filter(f => f && f[1] !== undefined && f[1] !== "").map(([name, value]) =>
  html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

// Tiles are the large numbers at the top of a page; to is the page with the details.
export const Tiles = ({ of }) => html`<ul class="tiles">${of.map(t => html`<li class=${t.kind || ""}>
  <a href=${link(...t.to)}><span class="name">${t.name}</span> <b>${t.value}</b></a></li>`)}</ul>`;

// Why shows the reason why something does not progress.
export function Why({ reason, error }) {
  if (error) return html`<p class="empty">The reason is not known: ${error}</p>`;
  if (!reason) return html`<p class="empty">Asking the cluster.</p>`;
  return html`<div class="why"><p><b>${reason.sentence}</b> <span class="cause">${reason.cause}</span></p>
    ${reason.evidence?.length ? html`<ul>${reason.evidence.map(e => html`<li>${e}</li>`)}</ul>` : null}
    ${reason.cure ? html`<p>Cure: ${reason.cure}</p>` : null}</div>`;
}

// Bar is a share from 0 to 1 as a labelled progress bar.
export const Bar = ({ share, label }) =>
  html`<progress max="1" value=${Math.max(0, Math.min(1, share || 0))} aria-label=${label}>${percent(share)}</progress>`;

// JSONText shows a document.
export const JSONText = ({ of, label }) =>
  html`<pre tabindex="0" role="region" aria-label=${label}>${JSON.stringify(of, null, 2)}</pre>`;

// count is a number with its noun.
export const count = (n, noun) => `${num(n)} ${noun}${n === 1 ? "" : "s"}`;
export const sum = (list, f) => (list || []).reduce((n, x) => n + (f(x) || 0), 0);
