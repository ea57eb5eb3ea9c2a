"use strict";
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// How the time axis is labelled, by the distance of its marks in seconds: [distance, label, label at a new year, day].
const TIMES = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [0.001, ":{ss}.{fff}", "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{MM}-{DD} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];

// marks draws the anomalies above the lines: a dot on the value and a faint rule through the chart.
function marks(chart) {
  return { hooks: { draw: [u => {
    const c = u.ctx;
    c.save();
    c.beginPath();
    c.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    c.clip();
    // Spans lie below the marks: incidents, and rows that are suspicious alone.
    for (const p of chart.spans) {
      const from = u.valToPos(p.begin, "x", true), to = u.valToPos(p.end, "x", true);
      c.globalAlpha = 0.14;
      c.fillStyle = color(p.incident ? "--bad" : "--score");
      c.fillRect(from - 1, u.bbox.top, Math.max(to - from, 2) + 1, u.bbox.height);
    }
    for (const a of chart.anomalies) {
      const x = u.valToPos(a.x, "x", true), y = u.valToPos(a.values[0], "f0", true);
      c.fillStyle = color("--bad");
      c.globalAlpha = 0.25;
      c.fillRect(x - 1, u.bbox.top, 2, u.bbox.height);
      c.globalAlpha = 1;
      if (a.values[0] === null) continue;
      c.beginPath();
      c.arc(x, y, 4 * devicePixelRatio, 0, 2 * Math.PI);
      c.fill();
    }
    c.restore();
  }] } };
}

// expected fills the band in which each shown feature was expected.
function expected(chart) {
  return { hooks: { drawAxes: [u => {
    const c = u.ctx;
    c.save();
    c.beginPath();
    c.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    c.clip();
    c.globalAlpha = 0.15;
    chart.low.forEach((low, f) => {
      if (!u.series[f + 1].show) return;
      const high = chart.high[f], at = (i, v) => [u.valToPos(chart.x[i], "x", true), u.valToPos(v, "f" + f, true)];
      c.fillStyle = color("--f" + f % 8);
      for (let i = 0; i < low.length;) {
        if (low[i] === null) { i++; continue; }
        const from = i;
        c.beginPath();
        for (; i < low.length && low[i] !== null; i++) c.lineTo(...at(i, high[i]));
        for (let k = i - 1; k >= from; k--) c.lineTo(...at(k, low[k]));
        c.fill();
      }
    });
    c.restore();
  }] } };
}

// Zooming one chart zooms all.
const plots = new Set();
let zoom = null, zooming = false;
function setZoom(range) {
  if (zooming) return;
  zooming = true;
  zoom = range;
  for (const u of plots) if (u.data[0].length) u.setScale("x", range ? { min: range[0], max: range[1] } : { min: u.data[0][0], max: u.data[0].at(-1) });
  zooming = false;
  showPeriod();
}
const linked = { hooks: { setSelect: [u => {
  if (u.select.width > 0) setZoom([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
}], ready: [u => u.over.addEventListener("dblclick", () => setZoom(null))] } };

// bands lays the labelled intervals below the lines: elements that say which of them were found.
function bands(chart) {
  const drawn = [];
  return { hooks: {
    init: [u => {
      for (const l of chart.labels) {
        const band = document.createElement("div"), text = document.createElement("span");
        band.className = l.found ? "band found" : "band missed";
        text.textContent = l.found ? "found" : "missed";
        band.append(text);
        u.over.prepend(band);
        drawn.push([l, band]);
      }
    }],
    draw: [u => {
      const { min, max } = u.scales.x;
      for (const [l, band] of drawn) {
        band.hidden = min == null || l.end < min || l.begin > max;
        if (band.hidden) continue;
        const from = u.valToPos(Math.max(l.begin, min), "x"), to = u.valToPos(Math.min(l.end, max), "x");
        band.style.left = from + "px";
        band.style.width = Math.max(to - from, 3) + "px";
      }
    }],
  } };
}

function draw(chart, box) {
  const axis = { stroke: () => color("--dim"), grid: { stroke: () => color("--line"), width: 1 }, ticks: { stroke: () => color("--line"), width: 1 } };
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
  const scales = { s: { range: [0, 1] } }; // every feature has its own; the axis shows the scale of the first
  for (const f of FEATURES.keys()) scales["f" + f] = { auto: true };
  const u = new uPlot({
    width: box.clientWidth, height: 220, plugins: [bands(chart), expected(chart), marks(chart), linked],
    tzDate: t => uPlot.tzDate(new Date(t * 1e3), "Etc/UTC"), // as the input is read
    scales,
    series: [
      { label: "time (UTC)", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" },
      ...FEATURES.map((name, f) => ({ label: name, stroke: () => color("--f" + f % 8), width: 1, scale: "f" + f, show: f < 8, points: { show: chart.x.length < 2 } })),
      { label: "score", stroke: () => color("--score"), width: 1, scale: "s", points: { show: chart.x.length < 2 } },
    ],
    axes: [{ ...axis, values: TIMES }, { ...axis, scale: "f0", size: 60, values: (_, v) => v.map(x => short.format(x)) }, { ...axis, scale: "s", side: 1, size: 40, grid: { show: false } }],
  }, [chart.x, ...chart.values, chart.score], box);
  plots.add(u);
  if (zoom) u.setScale("x", { min: zoom[0], max: zoom[1] });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const u of plots) u.redraw(); });
addEventListener("resize", () => { for (const u of plots) u.setSize({ width: u.root.parentNode.clientWidth, height: 220 }); });

function cell(row, tag, text) {
  const c = document.createElement(tag);
  c.textContent = text;
  row.append(c);
}

function list(chart) {
  const d = document.createElement("details"), s = document.createElement("summary"), t = document.createElement("table");
  s.textContent = "anomalies" + (chart.anomalies.length < chart.count ? ` (the first ${chart.anomalies.length})` : "");
  const head = t.createTHead().insertRow();
  for (const h of ["row", "timestamp", ...FEATURES, "score", "cause"]) cell(head, "th", h);
  const body = t.createTBody();
  for (const a of chart.anomalies) {
    const r = body.insertRow();
    for (const v of [a.row, a.timestamp, ...a.values, a.score.toFixed(3), a.cause]) cell(r, "td", v);
  }
  d.append(s, t);
  return d;
}

// labelled lists the labels of a chart.
function labelled(chart) {
  const d = document.createElement("details"), s = document.createElement("summary"), t = document.createElement("table");
  s.textContent = `labelled incidents (${chart.labels.filter(l => l.found).length} of ${chart.labels.length} found)`;
  const head = t.createTHead().insertRow();
  for (const h of ["", "begin", "end", "what"]) cell(head, "th", h);
  const body = t.createTBody();
  for (const l of chart.labels) {
    const r = body.insertRow();
    for (const v of [l.found ? "found" : "missed", l.from, l.to, l.what]) cell(r, "td", v);
  }
  d.append(s, t);
  return d;
}

// LINES are the charts, as text: each is parsed when it is shown.
const LINES = document.getElementById("data").textContent.split("\n").slice(1);
const $ = id => document.getElementById(id);
const time = t => new Date(t * 1e3).toISOString().replace("T", " ").replace(/\.000Z$|Z$/, "");

// The first charts are drawn at once. Others are drawn when they come into view, so that a report of
// many series opens at once.
const FIRST = 12, PAGE = 200, RANKED = 10, BINS = 120;
const seen = new IntersectionObserver(entries => {
  for (const e of entries) {
    if (!e.isIntersecting) continue;
    seen.unobserve(e.target);
    draw(e.target.chart, e.target);
  }
}, { rootMargin: "400px" });

function show(number, at) {
  const chart = JSON.parse(LINES[number]);
  const section = document.createElement("section"), title = document.createElement("h2"), note = document.createElement("small"), box = document.createElement("div");
  title.textContent = chart.name + " ";
  note.textContent = `${chart.rows} rows, ${chart.count} anomalies`;
  title.append(note);
  box.className = "plot";
  box.chart = chart;
  section.append(title, box);
  if (chart.anomalies.length) section.append(list(chart));
  if (chart.labels.length) section.append(labelled(chart));
  $("charts").append(section);
  if (at < FIRST) draw(chart, box); else seen.observe(box);
}

// The list has the entities that the filter leaves, in the order that was chosen.
let wanted = [], shown = 0;
function more(n) {
  for (const to = Math.min(wanted.length, shown + n); shown < to; shown++) show(wanted[shown], shown);
  $("more").hidden = shown >= wanted.length;
  $("shown").textContent = `${shown} of ${wanted.length} shown, ${INDEX.length} in all`;
}
const ORDERS = { count: (a, b) => b.c - a.c || (b.l || 0) - (a.l || 0) || b.s - a.s, score: (a, b) => b.s - a.s, name: (a, b) => a.n < b.n ? -1 : a.n > b.n ? 1 : 0 };
const sorted = (all, by) => [...all].sort((a, b) => ORDERS[by](INDEX[a], INDEX[b]) || a - b);
function refresh() {
  const text = $("search").value.toLowerCase(), only = $("only").checked, by = $("order").value;
  wanted = sorted([...INDEX.keys()].filter(k => (!text || INDEX[k].n.toLowerCase().includes(text)) && (!only || INDEX[k].c > 0)), by);
  for (const u of plots) u.destroy();
  plots.clear();
  seen.disconnect();
  $("charts").replaceChildren();
  shown = 0;
  more(PAGE);
  rank();
}

// rank lists the entities with the most incidents, in the order of the charts; a click filters for one.
function rank() {
  const most = new Set(sorted(wanted.filter(k => INDEX[k].c > 0), "count").slice(0, RANKED)), top = wanted.filter(k => most.has(k));
  $("rank").replaceChildren(...top.map(k => {
    const item = document.createElement("li"), button = document.createElement("button"), e = INDEX[k];
    button.type = "button";
    button.textContent = e.n;
    button.onclick = () => { $("search").value = e.n; refresh(); };
    item.append(button, ` ${e.c} anomalies, highest score ${e.s}` + (e.l ? `, ${e.f || 0} of ${e.l} labelled found` : ""));
    return item;
  }));
}

// The overview counts the incidents of all entities that begin in each part of the time. A click
// zooms all charts to a part and its neighbours.
const ranges = INDEX.filter(e => e.t[0] || e.t[1]).map(e => e.t);
const BEGIN = ranges.reduce((a, t) => Math.min(a, t[0]), Infinity), END = ranges.reduce((a, t) => Math.max(a, t[1]), -Infinity);
function overview() {
  const counts = new Array(BINS).fill(0), width = (END - BEGIN) / BINS || 1;
  for (const e of INDEX) for (const [from] of e.i || []) counts[Math.max(0, Math.min(BINS - 1, Math.floor((from - BEGIN) / width)))]++;
  const most = Math.max(1, ...counts);
  $("bars").replaceChildren(...counts.map((n, k) => {
    const bar = document.createElement("i");
    bar.style.height = n ? 4 + 56 * n / most + "px" : "1px";
    bar.title = `${n} incidents from ${isFinite(BEGIN) ? time(BEGIN + k * width) : ""}`;
    bar.onclick = () => setZoom([BEGIN + (k - 1) * width, BEGIN + (k + 2) * width]);
    return bar;
  }));
  showPeriod();
}
function showPeriod() {
  const [from, to] = zoom || [BEGIN, END];
  $("period").textContent = isFinite(from) ? `${time(from)} to ${time(to)} UTC` : "no rows";
}

$("search").addEventListener("input", () => { clearTimeout(refresh.timer); refresh.timer = setTimeout(refresh, 150); });
$("only").addEventListener("change", refresh);
$("order").addEventListener("change", refresh);
$("more").addEventListener("click", () => more(PAGE));
$("reset").addEventListener("click", () => setZoom(null));
$("what").addEventListener("click", e => e.target.setAttribute("aria-expanded", !($("help").hidden = !$("help").hidden)));
overview();
refresh();
document.body.dataset.ready = Math.round(performance.now());
