// The console: one stream of pictures of the whole mesh, a second apart, and what is made of each.

import { Chart } from "./charts.js";
import { MeshMap, levelOf } from "./map.js";
import { badge, byId, count, duration, h, keyed, linkKey, linkName, plural, rate, rows, say, size } from "./parts.js";
import { QueueRoom } from "./queues.js";
import { levelOfEvent, story } from "./story.js";

const MOST_EVENTS = 300, MOST_POINTS = 300;
let picture = null, selected = null;
const points = [], events = [];

const map = new MeshMap(byId("map"), (name) => { selected = selected === name ? null : name; draw(); });
const charts = [
  new Chart(byId("chart-rate"), "Deliveries", [
    { name: "in", look: "in", read: (point) => point.ingress }, { name: "out", look: "out", read: (point) => point.egress }], rate),
  new Chart(byId("chart-mean"), "Mean time until settled", [{ name: "", look: "one", read: (point) => point.mean_s }], duration),
  new Chart(byId("chart-unsettled"), "Unsettled deliveries", [{ name: "", look: "one", read: (point) => point.unsettled }], count),
];

const queues = new QueueRoom();

function headline() {
  const away = picture.routers.filter((router) => !("ingress" in router));
  const booting = picture.routers.filter((router) => router.state === "booting");
  const down = picture.links.filter((link) => !link.up);
  if (away.length) return ["bad", `${away.map((router) => `router ${router.name} ${router.state}`).join(", ")}`];
  if (picture.told.length) return ["bad", plural(picture.told.length, "trouble")];
  const lost = picture.sets.filter((set) => set.leader === null);
  if (lost.length) return ["bad", `${plural(lost.length, "replica set")} without a leader`];
  if (down.length) return ["bad", `${plural(down.length, "link")} down`];
  if (picture.waits.length) return ["warn", `${plural(picture.waits.length, "wait")} over 1 s`];
  if (booting.length) return ["warn", `router ${booting.map((router) => router.name).join(", ")} booting`];
  return ["ok", `${plural(picture.routers.length, "router")} ready`];
}

function draw() {
  if (picture === null) return;
  const [level, text] = headline();
  byId("headline").className = `state ${level}`;
  say(byId("headline"), text);
  say(byId("mesh"), picture.mesh);
  say(byId("by"), picture.by);
  document.title = `${picture.mesh}: ${text}`;
  map.draw(picture, selected);
  charts.forEach((chart) => chart.draw(points));
  drawWaits();
  drawRouters();
  queues.draw(picture);
  drawClients();
}

function drawWaits() {
  keyed(byId("told"), picture.told, (one) => `${one.router} ${one.text}`,
    (one) => h("li", {}, h("b", {}, one.router), ` ${one.text}`), () => {});
  rows(byId("waits"), picture.waits, (wait) => `${wait.router} ${wait.who} ${wait.for}`, (wait) =>
    [wait.who, wait.for, wait.router, wait.records ? count(wait.records) : "", duration(wait.since_s)]);
  byId("waits").hidden = picture.waits.length === 0;
  byId("nobody").hidden = picture.waits.length > 0 || picture.told.length > 0;
}

const chooser = (name) => (cell) => {
  if (cell.firstChild) return;
  const button = h("button", { type: "button", title: `Only clients of router ${name}` }, name);
  button.addEventListener("click", () => { selected = selected === name ? null : name; draw(); });
  cell.append(button);
};

function drawRouters() {
  rows(byId("routers"), picture.routers, (router) => router.name, (router) => {
    const level = levelOf(router, picture.waits);
    if (!("ingress" in router)) {
      return [chooser(router.name), badge(level, router.state), "", "", "", "", "", "", `away ${duration(router.away_s)}`];
    }
    const doubt = router.records.in_doubt + router.records.unconfirmed + router.records.placeholder;
    const state = router.state === "ready" && level === "warn" ? "waits" : router.state;
    return [chooser(router.name), badge(level, router.standing === "member" ? state : `${state}, ${router.standing}`),
      rate(router.ingress), rate(router.egress), count(doubt), size(router.message_bytes),
      count(router.connections), size(router.rss_bytes), duration(router.uptime_s)];
  });
  [...byId("routers").tBodies[0].rows].forEach((row) => row.classList.toggle("selected", row.cells[0].textContent === selected));
}

function drawClients() {
  const wanted = byId("filter").value.trim().toLowerCase();
  const shown = picture.clients.filter((client) => (selected === null || client.router === selected)
    && `${linkName(client)} ${client.address} ${client.user ?? ""}`.toLowerCase().includes(wanted));
  rows(byId("clients"), shown, linkKey, (client) => {
    const publishes = client.role === "publisher", level = client.status === "attached" ? "ok" : client.status === "suspended" ? "idle" : "warn";
    return [nameCell(client), client.address, client.router, badge(level, client.status),
      count(publishes ? client.received : client.delivered), count(client.unsettled),
      publishes ? "" : count(client.queued), count(client.credit)];
  });
  const listed = picture.routers.reduce((sum, router) => sum + (router.publishers ?? 0) + (router.subscribers ?? 0), 0) - picture.clients.length;
  byId("clients").hidden = shown.length === 0;
  say(byId("no-clients"), [shown.length ? "" : "No links.", listed > 0 ? `${count(listed)} more links are not listed.` : ""].join(" ").trim());
  const button = byId("unselect");
  button.hidden = selected === null;
  if (selected !== null) say(button, `only router ${selected}; show all routers`);
}

const nameCell = (client) => (cell) => {
  if (cell.firstChild) return;
  cell.append(h("i", { class: `glyph ${client.role}`, title: client.role }), linkName(client), ...(client.user ? [h("span", { class: "quiet" }, ` of ${client.user}`)] : []));
  cell.setAttribute("aria-label", `${client.role} ${linkName(client)}`);
};

function drawEvents() {
  const kind = byId("kinds").value;
  const shown = events.filter((event) => kind === "" || event.kind === kind);
  keyed(byId("events"), [...shown].reverse(), (event) => `${event.router} ${event.sequence}`, (event) => {
    const at = new Date(event.time * 1000);
    return h("li", { class: levelOfEvent(event.kind), "data-kind": event.kind },
      h("time", { datetime: at.toISOString() }, at.toLocaleTimeString("en-GB")), h("b", {}, event.router), h("span", {}, event.sentence));
  }, () => {});
}

function happened(fresh) {
  events.push(...fresh);
  events.sort((one, other) => one.time - other.time);
  events.splice(0, events.length - MOST_EVENTS);
  const known = new Set([...byId("kinds").options].map((option) => option.value));
  for (const kind of new Set(events.map((event) => event.kind))) {
    if (!known.has(kind)) byId("kinds").append(h("option", { value: kind }, kind));
  }
  drawEvents();
}

function listen() {
  const stream = new EventSource("feed");
  stream.addEventListener("open", () => { say(byId("stream-state"), "live"); document.body.dataset.stream = "live"; });
  stream.addEventListener("error", () => {
    document.body.dataset.stream = "lost";
    say(byId("stream-state"), "connection lost, trying again");
    byId("headline").className = "state idle";
    say(byId("headline"), `no news from router ${picture?.by ?? ""}`);
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  });
  stream.addEventListener("past", (event) => { points.splice(0, points.length, ...JSON.parse(event.data)); events.length = 0; });
  stream.addEventListener("happened", (event) => happened(JSON.parse(event.data)));
  stream.addEventListener("closed", () => {
    byId("events").replaceChildren(h("li", {}, "Only operators of the mesh can see events, because events name refused requests of other users."));
  });
  stream.addEventListener("mesh", (event) => {
    picture = JSON.parse(event.data);
    if (points.at(-1)?.time !== picture.point.time) points.push(picture.point);
    points.splice(0, points.length - MOST_POINTS);
    queues.note(picture);
    draw();
  });
}

byId("filter").addEventListener("input", drawClients);
byId("kinds").addEventListener("change", drawEvents);
byId("unselect").addEventListener("click", () => { selected = null; draw(); });
byId("lookup").addEventListener("submit", async (event) => {
  event.preventDefault();
  const asked = new URLSearchParams({ [byId("by-what").value]: byId("sought").value });
  byId("story").replaceChildren(h("p", { class: "quiet" }, "searching"));
  try {
    const reply = await fetch(`delivery?${asked}`);
    byId("story").replaceChildren(...(reply.ok ? story(await reply.json()) : [h("p", {}, (await reply.text()).trim())]));
  } catch {
    byId("story").replaceChildren(h("p", {}, "The router does not answer."));
  }
});

listen();
