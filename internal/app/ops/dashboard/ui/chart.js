// Charts: a canvas of uPlot, with its legend, and the same values as a table.
import { html, useState, useEffect, useRef, num, bytes, clock } from "./lib.js";

const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const COLORS = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7"];
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]]; // a second mark besides the color
let library = null;

// spiky returns the bound of a view without the few values that would flatten all others; 0: there are none.
function spiky(lists) {
  const all = lists.flat().filter(v => v > 0).sort((a, b) => a - b), usual = all[Math.floor(0.97 * (all.length - 1))];
  return all.length > 30 && all[all.length - 1] > 6 * usual ? 1.5 * usual : 0;
}
// Ticks of bytes are powers of two.
const binary = Array.from({ length: 54 }, (_, i) => 2 ** i);

// Chart draws lines over time. series is [{label, values, format, points, quiet}], all as long as at (unix
// seconds, or numbers that text shows). A stacked chart fills the area of each series above the one before
// it. One with a band fills the area between its series 2 and 3. The axis of a free chart need not begin at 0.
export function Chart({ title, at, series, format = num, stacked, range, band, free, text }) {
  const box = useRef(null), plot = useRef(null), [cursor, setCursor] = useState(null), [whole, setWhole] = useState(!!free), [scheme, setScheme] = useState(0);
  const shape = series.map(s => s.label).join("\n") + stacked;
  const lines = stacked ? stack(series) : series.map(s => s.values);
  const data = [at, ...lines];
  const clip = range || stacked ? 0 : spiky(lines), most = useRef(0);
  most.current = whole ? 0 : clip;
  const newest = useRef(data);
  newest.current = data;
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)"), again = () => setScheme(n => n + 1);
    dark.addEventListener("change", again);
    return () => dark.removeEventListener("change", again);
  }, []);
  useEffect(() => {
    let over = false, sized = null;
    (library ??= import("./vendor/uplot.mjs")).then(({ default: uPlot }) => {
      if (over || !box.current) return;
      const axis = { stroke: color("--dim"), font: "12px system-ui, sans-serif", grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
      plot.current = new uPlot({
        width: box.current.clientWidth || 300, height: 160, legend: { show: false }, cursor: { y: false, points: { show: false } },
        scales: { x: { range: times }, y: { range: (u, low, high) => (range ? range : free && high > low ? [low - 0.05 * (high - low), most.current || high + 0.05 * (high - low)] : [Math.min(0, low ?? 0), most.current || (high > 0 ? high * 1.08 : 1)]) } },
        series: [{}, ...series.map((s, i) => ({
          label: s.label, stroke: color(COLORS[i % 8]), width: 1.5, dash: stacked ? [] : DASHES[Math.floor(i / 2) % 4], spanGaps: false,
          fill: stacked ? color(COLORS[i % 8]) + "40" : undefined,
          ...(s.points ? { stroke: color("--bad"), width: 0, points: { show: true, size: 7, fill: color("--bad") } } : {}), ...(band && (i === 2 || i === 3) ? { stroke: "transparent" } : {}),
        }))], bands: band ? [{ series: [4, 3], fill: color("--c1") + "40" }] : [],
        axes: [{ ...axis, space: 76, values: (u, ticks) => ticks.map(t => (text ? text(t) : ticks[1] - ticks[0] >= 86400 ? new Date(1000 * t).toLocaleDateString("en-CA") : clock(new Date(1000 * t)).slice(0, ticks[1] - ticks[0] < 60 ? 8 : 5))) },
          { ...axis, size: 66, ...(format === bytes ? { incrs: binary } : {}), values: (u, ticks) => ticks.map(t => format(t)) }],
        hooks: { setCursor: [u => setCursor(u.cursor.idx ?? null)] },
      }, newest.current, box.current);
      sized = new ResizeObserver(() => box.current && plot.current?.setSize({ width: box.current.clientWidth, height: 160 }));
      sized.observe(box.current);
    });
    return () => {
      over = true;
      sized?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, scheme]);
  const when = t => (text ? text(t) : clock(new Date(1000 * t)));
  useEffect(() => { plot.current?.setData(data); });
  const last = at.length - 1, index = cursor !== null && cursor <= last ? cursor : last;
  const value = s => (s.format || format)(s.values[index]);
  return html`<figure class="chart"><figcaption>${title}</figcaption>
    <div class="plot" ref=${box} role="img" aria-label=${`${title}: ${series.map(s => `${s.label} ${(s.format || format)(s.values[last])}`).join(", ") || "no values"}`}></div>
    <ul class="legend" aria-hidden="true">${series.map((s, i) => !s.quiet && html`<li key=${s.label}><i class=${"swatch " + (s.points ? "bad" : "c" + (i % 8))}></i>${s.label} <b>${value(s)}</b></li>`)}
      ${cursor !== null && at[index] ? html`<li class="dim">${when(at[index])}</li>` : null}</ul>
    ${clip > 0 && html`<label class="dim"><input type="checkbox" checked=${whole} onChange=${e => setWhole(e.target.checked)} /> whole range<span class="quiet"> of ${title}</span>, up to ${format(Math.max(...lines.flat().filter(Number.isFinite)))}</label>`}
    <${Values} title=${title} at=${at} series=${series} format=${format} when=${when} /></figure>`;
}

// times is the range of the time axis: at least a minute, unless somebody has zoomed in.
function times(u, low, high) {
  const x = u.data[0], last = x.length ? x[x.length - 1] : Date.now() / 1000;
  const whole = x.length < 2 || (low <= x[0] && high >= last);
  return whole && !(last - x[0] >= 60) ? [last - 60, last] : [low, high];
}

// stack adds up series, for areas above each other; the first one ends up on top.
function stack(series) {
  const out = [];
  let below = null;
  for (const s of [...series].reverse()) {
    below = s.values.map((v, i) => (v ?? 0) + (below ? below[i] : 0));
    out.unshift(below);
  }
  return out;
}

// Values is the table of a chart. Its rows are made when it is opened.
function Values({ title, at, series, format, when }) {
  const [open, setOpen] = useState(false);
  const rows = [];
  if (open) for (let i = at.length - 1; i >= Math.max(0, at.length - 60); i--) rows.push(i);
  return html`<details onToggle=${e => setOpen(e.target.open)}><summary>Show as table<span class="quiet">: ${title}</span></summary>
    ${open && html`<div class="scroll" tabindex="0" role="region" aria-label=${`Table: ${title}`}><table><caption>${title}, the newest ${rows.length} values</caption>
      <thead><tr><th scope="col">time</th>${series.map(s => html`<th scope="col" class="n">${s.label}</th>`)}</tr></thead>
      <tbody>${rows.map(i => html`<tr><th scope="row">${when(at[i])}</th>${series.map(s => html`<td class="n">${(s.format || format)(s.values[i])}</td>`)}</tr>`)}</tbody></table></div>`}
  </details>`;
}

// of makes the series of a chart from {series} by name.
export const of = (t, names) => Object.entries(names).map(([name, label]) => ({ label, values: t.series[name] || t.at.map(() => null) }));
// all makes a series of every name that t has, in alphabetic order.
export const all = t => Object.keys(t.series).sort().map(name => ({ label: name, values: t.series[name] }));
