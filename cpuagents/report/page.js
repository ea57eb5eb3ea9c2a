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
  const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
  const scales = { s: { range: [0, 1] } }; // every feature has its own; the axis shows that of the first
  for (const f of FEATURES.keys()) scales["f" + f] = { auto: true };
  const u = new uPlot({
    width: box.clientWidth, height: 220, plugins: [bands(chart), marks(chart)],
    tzDate: t => uPlot.tzDate(new Date(t * 1e3), "Etc/UTC"), // as the input is read
    scales,
    series: [
      { label: "time (UTC)", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" },
      ...FEATURES.map((name, f) => ({ label: name, stroke: color("--f" + f), width: 1, scale: "f" + f, points: { show: chart.x.length < 2 } })),
      { label: "score", stroke: color("--score"), width: 1, scale: "s", points: { show: chart.x.length < 2 } },
    ],
    axes: [{ ...axis, values: TIMES }, { ...axis, scale: "f0", size: 60, values: (_, v) => v.map(x => short.format(x)) }, { ...axis, scale: "s", side: 1, size: 40, grid: { show: false } }],
  }, [chart.x, ...chart.values, chart.score], box);
  addEventListener("resize", () => u.setSize({ width: box.clientWidth, height: 220 }));
}

function cell(row, tag, text) {
  const c = document.createElement(tag);
  c.textContent = text;
  row.append(c);
}

function list(chart) {
  const d = document.createElement("details"), s = document.createElement("summary"), t = document.createElement("table");
  s.textContent = "anomalies" + (chart.anomalies.length < chart.count ? ` (the first ${chart.anomalies.length})` : "");
  const head = t.createTHead().insertRow();
  for (const h of ["row", "timestamp", ...FEATURES, "score"]) cell(head, "th", h);
  const body = t.createTBody();
  for (const a of chart.anomalies) {
    const r = body.insertRow();
    for (const v of [a.row, a.timestamp, ...a.values, a.score.toFixed(3)]) cell(r, "td", v);
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

// The first charts are drawn at once. Others are drawn when they come into view, so that a report of
// many series opens at once.
const FIRST = 12;
const seen = new IntersectionObserver(entries => {
  for (const e of entries) {
    if (!e.isIntersecting) continue;
    seen.unobserve(e.target);
    draw(e.target.chart, e.target);
  }
}, { rootMargin: "400px" });

for (const chart of DATA) {
  const section = document.createElement("section"), title = document.createElement("h2"), note = document.createElement("small"), box = document.createElement("div");
  title.textContent = chart.name + " ";
  note.textContent = `${chart.rows} rows, ${chart.count} anomalies`;
  title.append(note);
  box.className = "plot";
  box.chart = chart;
  section.append(title, box);
  if (chart.anomalies.length) section.append(list(chart));
  if (chart.labels.length) section.append(labelled(chart));
  document.getElementById("charts").append(section);
  if (document.querySelectorAll(".plot").length <= FIRST) draw(chart, box); else seen.observe(box);
}
