// The state of the cluster as the pages see it: one event stream, shared by all parts of a page.
import { useState, useEffect } from "./vendor/hooks.mjs";

const API = "api/v1/"; // relative, so that any path prefix works

// shared is what every page may read. state is the newest frame.
export const shared = { who: null, state: null, online: false, error: "", locked: false };
const listeners = new Set();
let version = 0; // counts the changes
export function notify() {
  version++;
  for (const f of listeners) f();
}

// useShared draws a component again with every frame. An effect runs after the page is painted, so a
// change may come before it listens.
export function useShared() {
  const [, draw] = useState(0), drawn = version;
  useEffect(() => {
    const f = () => draw(n => n + 1);
    listeners.add(f);
    if (drawn !== version) f();
    return () => listeners.delete(f);
  }, []);
  return shared;
}

// get asks the API. It throws an error with the server's sentence.
export async function get(path, options) {
  const answer = await fetch(API + path, { cache: "no-cache", ...options });
  if (answer.status === 401 && !options) lock();
  if (answer.status === 204) return null;
  const body = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  if (!answer.ok) throw Object.assign(new Error(body.error || `status ${answer.status}`), { status: answer.status });
  return body;
}

function lock() {
  shared.locked = true;
  source?.close();
  source = null;
  notify();
}

// useJSON asks a path again every `every` seconds while the page is visible, and at once when it becomes
// visible. A path of null asks nothing.
export function useJSON(path, every) {
  const [got, set] = useState({ data: null, error: "" });
  useEffect(() => {
    if (path === null) return;
    let timer, over = false, asking = false;
    set(old => (old.path === path ? old : { path, data: null, error: "" }));
    const ask = async () => {
      asking = true;
      if (!document.hidden) {
        try {
          const data = await get(path);
          if (!over) set({ path, data, error: "" });
        } catch (e) {
          if (!over) set(old => ({ ...old, path, error: e.message, status: e.status }));
        }
      }
      asking = false;
      if (!over && every) timer = setTimeout(ask, 1000 * every);
    };
    const shown = () => {
      if (document.hidden || asking) return;
      clearTimeout(timer);
      ask();
    };
    document.addEventListener("visibilitychange", shown);
    ask();
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [path, every]);
  return got.path === path ? got : { data: null, error: "" };
}

// useTail is the newest answers of a shard, newest first. Each answer costs the cluster a message, so
// only the first question asks for many; later ones ask for the newest few and add them. Of a busy shard
// some answers are left out.
export function useTail(path, shard, most) {
  const [got, set] = useState({ data: null, error: "" });
  const key = path && `${path}/decisions?shard=${shard}`;
  useEffect(() => {
    if (!key) return;
    let timer, over = false, asking = false, known = [];
    set({ data: null, error: "" });
    const ask = async () => {
      asking = true;
      if (!document.hidden) {
        try {
          const list = await get(`${key}&limit=${known.length ? Math.min(20, most) : most}`);
          const last = list.at(-1)?.seq ?? 0;
          if (known.length && list.length && list[0].seq < known[0].seq) known = []; // another swarm of the name
          known = list.concat(known.filter(d => d.seq < last)).slice(0, most);
          if (!over) set({ data: known, error: "" });
        } catch (e) {
          if (!over) set(old => ({ ...old, error: e.message }));
        }
      }
      asking = false;
      if (!over) timer = setTimeout(ask, 3000);
    };
    const shown = () => {
      if (document.hidden || asking) return;
      clearTimeout(timer);
      ask();
    };
    document.addEventListener("visibilitychange", shown);
    ask();
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [key]);
  return got;
}

// The stream is open while the page is visible: hidden tabs cost nothing, and a browser never uses up
// its six connections.
let source = null, retry = 0;
function open() {
  if (source || document.hidden || shared.locked) return;
  source = new EventSource(API + "events");
  source.addEventListener("state", e => {
    const state = JSON.parse(e.data);
    shared.state = state;
    shared.online = true;
    shared.error = state.error || "";
    record(state, e.data.length);
    notify();
  });
  source.onerror = () => {
    shared.online = false;
    notify();
    if (source && source.readyState === EventSource.CLOSED) { // refused: the browser does not try again
      source = null;
      clearTimeout(retry);
      retry = setTimeout(() => get("login").then(open, e => e.status === 401 || (retry = setTimeout(open, 5000))), 2000);
    }
  };
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    source?.close();
    source = null;
  } else open();
});

// Tracks are series that a page computes of each frame. They last while the tab does, at most LENGTH
// points each, so that a page that is opened again has its past. The newest frames are kept, as far as
// they are small, so that a page that is opened for the first time has one too.
const tracks = new Map(), LENGTH = 900, MOST = 24, FRAMES = 300, BYTES = 8e6;
const recent = []; // [state, length of its text]
let kept = 0;
function record(state, length) {
  for (const t of tracks.values()) extend(t, state, recent.at(-1)?.[0]);
  recent.push([state, length]);
  kept += length;
  while (recent.length > FRAMES || (kept > BYTES && recent.length > 1)) kept -= recent.shift()[1];
}
function extend(t, state, before) {
  const at = Date.parse(state.at) / 1000;
  if (t.at.length && t.at[t.at.length - 1] >= at) return;
  const values = t.of(state, before);
  t.at.push(at);
  for (const name of Object.keys(values)) t.series[name] ??= new Array(t.at.length - 1).fill(null);
  for (const [name, list] of Object.entries(t.series)) list.push(values[name] ?? null);
  if (t.at.length > LENGTH) {
    t.at.shift();
    for (const list of Object.values(t.series)) list.shift();
  }
}

// track returns the series {at, series} of a key. of(state, before) returns the values by name.
export function track(key, of) {
  let t = tracks.get(key);
  if (t) {
    tracks.delete(key); // the newest use is last
    t.of = of;
  } else {
    t = { at: [], series: {}, of };
    recent.forEach(([state], i) => extend(t, state, recent[i - 1]?.[0]));
  }
  tracks.set(key, t);
  if (tracks.size > MOST) tracks.delete(tracks.keys().next().value);
  return t;
}

const past = track("history", state => state.numbers || {});
// useHistory is the past of range seconds. Within 15 minutes the frames continue it.
export function useHistory(range) {
  // The server has a value of each second of the last 15 minutes only.
  const { data } = useJSON(`history?seconds=${range}`, range > 900 ? 60 : 30);
  useShared();
  track("history", past.of);
  if (!data) return past;
  const from = data.at?.length ? data.at[data.at.length - 1] : 0;
  const first = past.at.findIndex(t => t > from);
  const tail = first < 0 || range > 900 ? [] : past.at.slice(first);
  const series = {};
  for (const name of new Set([...Object.keys(data.series || {}), ...Object.keys(past.series)])) {
    const old = data.series?.[name] || new Array(data.at?.length || 0).fill(null);
    series[name] = tail.length ? old.concat(past.series[name]?.slice(first) || tail.map(() => null)) : old;
  }
  return { at: (data.at || []).concat(tail), series };
}

// logIn exchanges a token for a cookie.
export async function logIn(token) {
  await get("login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token }) });
  shared.locked = false;
  await start();
}
export async function logOut() {
  await get("login", { method: "DELETE" });
  lock();
}
export async function start() {
  try {
    shared.who = await get("login");
    open();
  } catch (e) {
    if (e.status !== 401) shared.error = e.message;
  }
  notify();
}

// labelled adds the values of the samples of a metric by a label.
export function byLabel(agents, name, label) {
  const out = {};
  for (const a of agents || []) for (const s of a.telemetry?.samples || []) {
    if (s.n === name) out[s.l?.[label] || "all"] = (out[s.l?.[label] || "all"] || 0) + s.v;
  }
  return out;
}
