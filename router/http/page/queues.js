// The room of queues: the replica sets, the deepest queues, and all that is known of the chosen queue.

import { Chart } from "./charts.js";
import { badge, byId, count, duration, h, linkKey, linkName, plural, rate, rows, say, size } from "./parts.js";

const MOST_POINTS = 300;
const MANY_BEHIND = 1000; // as the alert OncemeshFollowerBehind has it: under load each replica lacks some entries

export class QueueRoom {
  constructor() {
    this.picture = null;
    this.chosen = null;
    this.points = new Map();
    this.charts = [
      new Chart(byId("chart-depth"), "In the queue", [
        { name: "messages", look: "one", read: (point) => point.messages }, { name: "reserved", look: "in", read: (point) => point.reserved }], count),
      new Chart(byId("chart-flow"), "Messages", [
        { name: "in", look: "in", read: (point) => point.in }, { name: "out", look: "out", read: (point) => point.out }], rate),
      new Chart(byId("chart-oldest"), "Oldest message, at least", [{ name: "", look: "one", read: (point) => point.oldest_s }], duration),
    ];
    byId("queue-filter").addEventListener("input", () => this.draw(this.picture));
    byId("leave-queue").addEventListener("click", () => this.choose(null));
    byId("peek").addEventListener("click", () => this.peek());
  }

  /** Keep a point of each queue. The console has figures of a queue only for times when this page was open. */
  note(picture) {
    const former = this.points;
    this.points = new Map(picture.queues.map((queue) => {
      const points = former.get(queue.name) ?? [];
      if (points.at(-1)?.time !== picture.time) points.push({ time: picture.time, ...queue });
      points.splice(0, points.length - MOST_POINTS);
      return [queue.name, points];
    }));
  }

  choose(name) {
    this.chosen = this.chosen === name ? null : name;
    byId("peeked").replaceChildren();
    this.draw(this.picture);
    if (this.chosen !== null) byId("queue").scrollIntoView({ block: "nearest" });
  }

  draw(picture) {
    this.picture = picture;
    byId("queues-room").hidden = picture.sets.length === 0;
    byId("queues-panel").hidden = picture.queues.length === 0;
    this.drawSets(picture.sets);
    this.drawQueues(picture);
    this.drawChosen(picture);
  }

  drawSets(sets) {
    const needed = [...new Set(sets.flatMap((set) => set.needed))].sort();
    const lost = sets.filter((set) => set.leader === null);
    say(byId("stops"), lost.length ? `stop no router: ${plural(lost.length, "replica set")} without a leader`
      : needed.length ? `do not stop router ${needed.join(" or ")}: a replica set needs it`
        : "you may stop any one router: each replica set keeps its majority");
    const member = (set) => (name) => {
      if (set.away_s[name] !== undefined) return `${name} (away ${duration(set.away_s[name])})`;
      return set.behind[name] ? `${name} (${count(set.behind[name])} behind)` : name;
    };
    rows(byId("sets"), sets, (set) => set.name, (set) => [
      set.prefix ? `${set.name}, ${set.prefix}` : set.name,
      badge(set.leader === null ? "bad" : set.needed.length ? "warn" : "ok", set.leader ?? "none"),
      set.voters.map(member(set)).join(", "), set.learners.map(member(set)).join(", "), set.needed.join(", "),
      count(set.queues), count(set.term), size(set.unstored_bytes)]);
  }

  drawQueues(picture) {
    const wanted = byId("queue-filter").value.trim().toLowerCase();
    const shown = picture.queues.filter((queue) => `${queue.name} ${queue.set}`.toLowerCase().includes(wanted));
    rows(byId("queues"), shown, (queue) => queue.name, (queue) => [
      this.chooser(queue.name), queue.set, queue.leader, count(queue.messages), count(queue.reserved), size(queue.bytes),
      queue.messages ? duration(queue.oldest_s) : "", count(queue.consumers), rate(queue.in), rate(queue.out),
      queue.outbox ? count(queue.outbox) : ""]);
    for (const [name, row] of byId("queues").tBodies[0].keyed ?? []) row.classList.toggle("selected", name === this.chosen);
    say(byId("more-queues"), picture.more_queues ? `${plural(picture.more_queues, "more queue")} not listed.` : "");
  }

  chooser(name) {
    return (cell) => {
      if (cell.firstChild) return;
      const button = h("button", { type: "button", title: "All about this queue" }, name);
      button.addEventListener("click", () => this.choose(name));
      cell.append(button);
    };
  }

  drawChosen(picture) {
    const queue = picture.queues.find((one) => one.name === this.chosen);
    byId("queue").hidden = queue === undefined;
    if (queue === undefined) return;
    const set = picture.sets.find((one) => one.name === queue.set);
    say(byId("queue-name"), queue.name);
    say(byId("queue-about"), about(queue, set));
    this.charts.forEach((chart) => chart.draw(this.points.get(queue.name) ?? []));
    rows(byId("replicas"), set ? [...set.voters, ...set.learners] : [], (router) => router, (router) => replica(set, router));
    const consumers = picture.clients.filter((client) => client.role === "subscriber" && client.address === queue.name);
    rows(byId("consumers"), consumers, linkKey, (one) => [linkName(one), one.router,
      badge(one.status === "attached" ? "ok" : one.status === "suspended" ? "idle" : "warn", one.status), count(one.unsettled), count(one.credit)]);
    byId("consumers").hidden = consumers.length === 0;
    const more = queue.consumers - consumers.length;
    say(byId("no-consumers"), queue.consumers === 0 ? "No consumers." : more > 0 ? `${plural(more, "more consumer")} not listed.` : "");
  }

  async peek() {
    const name = this.chosen, place = byId("peeked");
    place.replaceChildren(h("p", { class: "quiet" }, "asking the leader"));
    try {
      const reply = await fetch(`queue?${new URLSearchParams({ name })}`);
      const found = reply.ok ? peeked(await reply.json()) : [h("p", {}, (await reply.text()).trim())];
      if (name === this.chosen) place.replaceChildren(...found);
    } catch {
      place.replaceChildren(h("p", {}, "The router does not answer."));
    }
  }
}

function about(queue, set) {
  const counts = [[queue.enqueued, "came"], [queue.dequeued, "left"], [queue.given_back, "given back"], [queue.purged, "purged"],
    [queue.expired, "expired"], [queue.dead, "gone to another address as dead letters"]];
  const where = set?.leader ? `In set ${queue.set}, led by router ${set.leader}.` : `In set ${queue.set}, without a leader.`;
  const outbox = queue.outbox ? ` ${plural(queue.outbox, "dead letter")} not taken by any address yet.` : "";
  const waiting = [[queue.paused, "pause after a failure"], [queue.scheduled, "wait for their delivery time"]].filter(([number]) => number);
  const resting = waiting.length ? ` ${waiting.map(([number, what]) => `${count(number)} ${what}`).join(", ")}.` : "";
  return `${where}${resting} Since this router leads: ${counts.map(([number, what]) => `${count(number)} ${what}`).join(", ")}.${outbox}`;
}

function replica(set, router) {
  const role = router === set.leader ? "leader" : set.async.includes(router) ? "asynchronous copy" : set.learners.includes(router) ? "learner" : "voter";
  if (set.away_s[router] !== undefined) return [router, role, badge("bad", `away ${duration(set.away_s[router])}`)];
  const behind = set.behind[router] ?? 0;
  const state = router === set.leader ? badge("ok", "has all") : behind ? badge(behind < MANY_BEHIND ? "idle" : "warn", `${count(behind)} behind`) : badge("ok", "has all");
  return [router, role, state];
}

/** The first messages of a queue, and its settings, as nodes. */
function peeked({ settings, messages }) {
  const set = Object.entries(settings).map(([name, value]) => `${name} ${Array.isArray(value) ? value.join(", ") : value}`);
  return [h("h3", {}, "Settings"), h("p", {}, set.join("; ") || "none"), h("h3", {}, "First messages"),
    messages.length ? h("ul", {}, ...messages.map(message)) : h("p", { class: "quiet" }, "No messages.")];
}

function message(one) {
  const facts = [`position ${one.position}`, size(one.size)];
  if (one.consumer !== null) facts.push(`at consumer ${one.consumer}`);
  if (one.failed) facts.push(`failed ${plural(one.failed, "time")}`);
  if (one.dead) facts.push(`dead letter of ${one.dead.from}: ${one.dead.why}`);
  return h("li", {}, h("div", { class: "quiet" }, facts.join(", ")), h("div", { class: "key" }, one.text));
}
