// The frame of the dashboard: login, navigation and the page that the address names.
import { h, render } from "./vendor/preact.mjs";
import { html, useState, useEffect, useLayoutEffect, useRef, link, count, Time, State } from "./lib.js";
import { shared, useShared, start, logIn, logOut } from "./data.js";
import { Overview, Numbers } from "./pages/overview.js";
import { Incidents, Entity, open as goesOn } from "./pages/incidents.js";
import { Queue, Job } from "./pages/queue.js";
import { Swarms, Swarm } from "./pages/swarms.js";
import { Agents, Agent, Tiers } from "./pages/agents.js";
import { Detectors, Detector } from "./pages/detectors.js";
import { Tenants, NATS, Doctor } from "./pages/system.js";
import { Audit } from "./actions.js";

// The pages: [title, first part of the address, the other pages below it].
const menu = [
  ["Overview", "", Overview], ["Incidents", "incidents", Incidents], ["Queue", "queue", Queue], ["Detectors", "detectors", Detectors], ["Swarms", "swarms", Swarms], ["Agents", "agents", Agents], ["Tiers", "tiers", Tiers],
  ["Tenants", "tenants", Tenants], ["NATS", "nats", NATS], ["Doctor", "doctor", Doctor],
  ["Audit", "audit", Audit],
];

// page finds the component and its properties for the parts of an address.
function page(parts) {
  const [first = "", name, , shard, , seq] = parts;
  if (first === "jobs" && name) return [Job, { id: name }, `Job ${name}`, "queue"];
  if (first === "swarms" && parts[2] === "shards" && parts[4] === "decisions" && seq) return [Decision, { name, shard, seq, group: parts[7] }, `Decision ${seq} of ${name}`, "swarms"];
  if (first === "swarms" && parts[2] === "shards" && parts[4] === "at" && seq) return [Moment, { name, shard, entry: seq, ...named(parts.slice(6)) }, `${name} at entry ${seq}`, "swarms"];
  if (first === "swarms" && parts[2] === "entities" && parts[3]) return [Entity, { name, group: parts[3] }, `Entity ${parts[3]} of ${name}`, "incidents"];
  if (first === "swarms" && parts[2] === "agents" && parts[3]) return [Observed, { name, agent: parts[3] }, `Agent ${parts[3]} of ${name}`, "swarms"];
  if (first === "detectors" && name) return [Detector, { name }, `Detector ${name}`, "detectors"];
  if (first === "swarms" && name) return [Swarm, { name }, `Swarm ${name}`, "swarms"];
  if (first === "agents" && name) return [Agent, { name }, `Agent ${name}`, "agents"];
  if (first === "numbers") return [Numbers, {}, "Numbers", ""];
  const found = menu.find(m => m[1] === first);
  return found ? [found[2], {}, found[0], first] : [Missing, {}, "Not found", ""];
}
// named makes properties of the parts NAME/VALUE of an address.
const named = parts => Object.fromEntries(parts.map((p, i) => [p, parts[i + 1]]).filter((_, i) => i % 2 === 0));
// later loads a page when it is opened.
const later = load => props => {
  const [Page, set] = useState(null);
  useEffect(() => void load().then(page => set(() => page)), []);
  return Page ? html`<${Page} ...${props} />` : html`<h1>Loading</h1>`;
};
const Decision = later(() => import("./pages/travel.js").then(m => m.Decision)), Moment = later(() => import("./pages/travel.js").then(m => m.Moment)), Observed = later(() => import("./pages/travel.js").then(m => m.Observed));
const Missing = () => html`<h1>Not found</h1><p class="empty">There is no such page. <a href="#/">Overview</a></p>`;

const parts = () => {
  try {
    return location.hash.replace(/^#\/?/, "").split("/").filter(p => p !== "").map(decodeURIComponent);
  } catch {
    return ["?"];
  }
};

function useRoute() {
  const [at, set] = useState(parts);
  useEffect(() => {
    const f = () => set(parts());
    addEventListener("hashchange", f);
    f(); // the address may have changed since the first drawing
    return () => removeEventListener("hashchange", f);
  }, []);
  return at;
}

function Main() {
  const s = useShared(), at = useRoute(), [Page, props, title] = page(at), first = useRef(true), address = at.join("/");
  // The focus moves while the page is drawn, not behind it: a later move would take it from an element
  // that the user has reached in between.
  useLayoutEffect(() => {
    document.title = `${title} · Exoswarm`;
    if (!first.current) document.getElementById("main").focus({ preventScroll: false });
    first.current = false;
    scrollTo(0, 0);
  }, [address]);
  if (s.locked) return html`<${Login} />`;
  if (!s.state) return html`<h1>${title}</h1><p class="empty">${s.error || "Waiting for the first look at the cluster."}</p>`;
  // What is shown is old while the browser or the dashboard gets no answer.
  const old = !s.online || s.error;
  return html`${old && html`<p class="warn old" role="alert">${s.online ? "The cluster does not answer" : "The dashboard does not answer"}: everything below is as of <${Time} at=${s.error ? s.state.since || s.state.at : s.state.at} />. It goes on by itself.</p>`}
    <div class=${old ? "stale" : ""}><${Page} key=${address} ...${props} state=${s.state} /></div>`;
}

function Login() {
  const [token, setToken] = useState(""), [error, setError] = useState("");
  const send = e => {
    e.preventDefault();
    logIn(/#t=/.test(token) ? decodeURIComponent(token.trim().replace(/^.*#t=/, "")) : token.trim()).catch(x => setError(x.message));
  };
  return html`<h1>Log in</h1><p>Open the address that the program printed at its start, or paste its token here.</p>
    <form onSubmit=${send} class="login"><label>Token <input type="password" autocomplete="off" required value=${token} onInput=${e => setToken(e.target.value)} aria-describedby="login-error" /></label> <button type="submit">Log in</button></form>
    <p id="login-error" role="alert">${error}</p>`;
}

function Nav() {
  const at = useRoute(), [, , , current] = page(at);
  return html`<ul>${menu.map(([title, to]) => html`<li><a href=${to ? link(to) : "#/"} aria-current=${to === current ? "page" : undefined}>${title}</a></li>`)}</ul>`;
}

// Status says whether the numbers are live. It changes only when that does, so that a screen reader
// does not speak every second.
function Status() {
  const s = useShared();
  const state = s.locked ? "logged out" : !s.state ? "connecting" : !s.online ? "connection lost" : s.error ? "the cluster does not answer" : "live";
  const now = (s.state?.incidents || []).filter(goesOn).length;
  return html`${state === "live" && now > 0 ? html`<a href="#/incidents"><${State} of="error" text=${`${count(now, "incident")} now`} /></a> ` : null}<${State} of=${{ live: "ok", connecting: "waiting" }[state] ?? "error"} text=${state} />
    ${s.who && !s.locked ? html`<span class="who"> ${s.who.user} ${s.who.version} <button type="button" class="plain" onClick=${logOut}>Log out</button></span>` : null}`;
}

// begin uses the token in the address, and takes it out of the address and of the history.
async function begin() {
  const token = location.hash.match(/^#t=(.+)$/)?.[1];
  if (!token) return start();
  history.replaceState(null, "", location.pathname + location.search + "#/");
  dispatchEvent(new HashChangeEvent("hashchange"));
  try {
    await logIn(decodeURIComponent(token));
  } catch (e) {
    await start();
  }
}
addEventListener("hashchange", () => location.hash.startsWith("#t=") && begin());

begin();
const main = document.getElementById("main"), nav = document.getElementById("nav"), status = document.getElementById("status");
for (const [root, part] of [[main, Main], [nav, Nav], [status, Status]]) {
  root.textContent = "";
  render(h(part), root);
}
