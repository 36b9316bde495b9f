// What has happened, and what is known of one delivery, in words.

import { h, linkName, size } from "./parts.js";

const LEVELS = {
  bad: ["contact-lost", "neighbour-down", "limit", "refused", "connection-ended", "warning"],
  warn: ["suspended", "expired", "fenced", "stolen", "draining", "stopping", "closed-by-management"],
  ok: ["boot", "contact", "neighbour-up", "attached", "moved"],
};

export const levelOfEvent = (kind) => Object.keys(LEVELS).find((level) => LEVELS[level].includes(kind)) ?? "idle";

/** One sentence of an event; its kinds are those of docs/management.md. */
export function sentence(event) {
  const link = event.link === undefined ? "" : `${event.role} ${linkName(event)} on ${event.address}`;
  const why = event.why ? `: ${event.why}` : "";
  switch (event.kind) {
    case "boot": return "began";
    case "draining": return "sends its clients away";
    case "stopping": return "stops";
    case "plan": return `knows another plan: ${Object.keys(event.routers ?? {}).join(", ")}`;
    case "neighbour-up": return `link to router ${event.neighbour} is up`;
    case "neighbour-down": return `link to router ${event.neighbour} is down`;
    case "contact": return `contact with router ${event.peer}`;
    case "contact-lost": return `contact with router ${event.peer} lost${why}`;
    case "moved": return `${link} moves here from router ${event.former}`;
    case "attached": return `${link} attached`;
    case "suspended": return `${link} is away, and may come back`;
    case "detached": return `${link} left`;
    case "stolen": return event.peer ? `${link} went to router ${event.peer}` : `${link} attached anew`;
    case "expired": return `${link} expired${why}`;
    case "fenced": return `a batch of router ${event.peer} for ${link} was dropped`;
    case "limit": return `limit ${event.limit}: ${event.origin ?? ""}${why}`;
    case "refused": return `refused ${event.origin ?? ""}${why}`;
    case "connection-ended": return `connection of ${event.origin ?? ""} ended${why}`;
    case "closed-by-management": return `connection of ${event.container ?? event.origin ?? ""} closed by management`;
    default: return event.text ?? event.kind;
  }
}

const STATES = {
  in_doubt: "in doubt", accepted: "accepted, and not yet settled by its publisher", settled: "settled",
  unconfirmed: "in doubt, and not confirmed by a home", placeholder: "named by a client, its message is not here",
};

/** All that routers know of a delivery, as nodes. */
export function story({ sought, routers }) {
  const known = Object.entries(routers).filter(([, record]) => record.identity !== undefined);
  const problems = Object.entries(routers).filter(([, record]) => record.problem !== undefined)
    .map(([router, record]) => h("p", { class: "quiet" }, `router ${router}: ${record.problem}`));
  if (known.length === 0) {
    const none = `No router has a record of ${sought}: it is settled everywhere, or has never come.`;
    return problems.length ? problems : [h("p", {}, none)];
  }
  const [, any] = known[0], home = known.find(([router, record]) => record.home === router)?.[1];
  const about = h("dl");
  for (const [name, value] of [["publisher", any.publisher], ["address", any.address], ["home", any.home],
    ["tag", home?.name], ["key", any.identity], ["size", size(any.bytes)], ["number", any.n >= 0 ? any.n : null]]) {
    if (value !== null && value !== undefined && value !== "") {
      about.append(h("dt", {}, name), h("dd", name === "key" ? { class: "key" } : {}, String(value)));
    }
  }
  return [about, h("ul", {}, ...known.flatMap(([router, record]) => at(router, record))), ...problems];
}

function at(router, record) {
  const lines = [`${router}${record.home === router ? ", its home" : ""}: ${STATES[record.state] ?? record.state}`];
  if (record.awaitedRouters?.length) lines.push(`waits for router ${record.awaitedRouters.join(", ")}`);
  if (record.orphans?.length) lines.push(`waits for ${record.orphans.join(", ")}, at no router in contact`);
  for (const [subscriber, state] of Object.entries(record.subscribers ?? {})) lines.push(`subscriber ${subscriber}: ${state}`);
  return [h("li", {}, h("b", {}, lines[0]), ...lines.slice(1).map((line) => h("div", {}, line)))];
}
