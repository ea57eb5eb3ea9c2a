// A raster is a canvas of small cells in rows. Its cells are reached with the pointer and the arrow keys.
import { html, useState, useEffect, useRef } from "./lib.js";

// rgb returns the red, green and blue of a color of the style sheet.
export function rgb(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim().replace("#", "");
  const full = hex.length === 3 ? [...hex].map(c => c + c).join("") : hex;
  return [0, 2, 4].map(i => parseInt(full.slice(i, i + 2), 16));
}
export const mix = (a, b, t) => a.map((v, i) => v + (b[i] - v) * t);

// useScheme draws a component again when the color scheme changes.
export function useScheme() {
  const query = matchMedia("(prefers-color-scheme: dark)"), [dark, set] = useState(query.matches);
  useEffect(() => {
    const f = () => set(query.matches);
    query.addEventListener("change", f);
    return () => query.removeEventListener("change", f);
  }, []);
  return dark;
}

// Raster draws n cells, in a square unless columns and ratio, its width by its height, are given.
// paint(i, x, y) returns the color of a cell, text(i) says what it is.
export function Raster({ n, paint, text, label, columns: given = 0, ratio = 1 }) {
  const box = useRef(null), [at, setAt] = useState(0), columns = given || Math.max(1, Math.ceil(Math.sqrt(n))), rows = Math.max(1, Math.ceil(n / columns));
  useEffect(() => {
    const canvas = box.current, context = canvas.getContext("2d");
    canvas.width = columns;
    canvas.height = rows;
    canvas.style.aspectRatio = ratio; // a style sheet cannot know it
    const image = context.createImageData(columns, rows);
    for (let i = 0; i < n; i++) {
      const c = paint(i, i % columns, Math.floor(i / columns));
      image.data[4 * i] = c[0];
      image.data[4 * i + 1] = c[1];
      image.data[4 * i + 2] = c[2];
      image.data[4 * i + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  });
  const i = Math.min(at, n - 1);
  const move = e => {
    const r = box.current.getBoundingClientRect(), x = Math.floor(((e.clientX - r.left) / r.width) * columns), y = Math.floor(((e.clientY - r.top) / r.height) * rows);
    if (x >= 0 && y >= 0 && x < columns && y * columns + x < n) setAt(y * columns + x);
  };
  const keys = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, PageDown: 10 * columns, PageUp: -10 * columns, Home: -n, End: n };
  const key = e => {
    if (!(e.key in keys)) return;
    e.preventDefault();
    setAt(Math.max(0, Math.min(n - 1, i + keys[e.key])));
  };
  return html`<div class="raster" role="slider" tabindex="0" aria-label=${label} aria-valuemin="0" aria-valuemax=${n - 1} aria-valuenow=${i} aria-valuetext=${text(i)} onKeyDown=${key} onPointerMove=${move} onPointerDown=${move}><canvas ref=${box}></canvas></div>
    <p class="cell">${text(i)}</p>`;
}

// Scale is the legend of values.
export function Scale({ paint, low, high }) {
  const box = useRef(null);
  useEffect(() => {
    const canvas = box.current, context = canvas.getContext("2d");
    for (let x = 0; x < 256; x++) {
      context.fillStyle = `rgb(${paint(x).map(Math.round).join(",")})`;
      context.fillRect(x, 0, 1, 8);
    }
  });
  return html`<p class="scale"><span>${low}</span> <canvas ref=${box} width="256" height="8" aria-hidden="true"></canvas> <span>${high}</span></p>`;
}
