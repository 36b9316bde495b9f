// What has happened, and what is known of one delivery, in words.

import { h, size } from "./parts.js";

const LEVELS = {
  bad: ["contact-lost", "neighbour-down", "limit", "refused", "connection-ended", "leaderless", "store-aside", "warning"],
  warn: [
    "suspended", "expired", "fenced", "stolen", "draining", "stopping", "closed-by-management", "forgotten",
    "not-leading", "set-changed",
  ],
  ok: ["boot", "contact", "neighbour-up", "attached", "moved", "leading"],
};

export const levelOfEvent = (kind) => Object.keys(LEVELS).find((level) => LEVELS[level].includes(kind)) ?? "idle";

const STATES = {
  in_doubt: "in doubt", accepted: "accepted; its publisher has not settled it yet", settled: "settled",
  unconfirmed: "in doubt; its former home is lost, and no new home has confirmed it",
  placeholder: "in doubt; a client has named it, and this router does not have the message",
};

/** All that routers know of a delivery, as nodes. */
export function story({ sought, routers }) {
  const known = Object.entries(routers).filter(([, record]) => record.identity !== undefined);
  const problems = Object.entries(routers).filter(([, record]) => record.problem !== undefined)
    .map(([router, record]) => h("p", { class: "quiet" }, `router ${router}: ${record.problem}`));
  if (known.length === 0) {
    const none = `No router has a record of ${sought}: it was settled at all routers, or no router has received it.`;
    return problems.length ? problems : [h("p", {}, none)];
  }
  const [, any] = known[0], home = known.find(([router, record]) => record.home === router)?.[1];
  const about = h("dl");
  for (const [name, value] of [["publisher", any.publisher], ["address", any.address], ["home", any.home],
    ["tag", home?.name], ["key", any.identity], ["size", size(any.bytes)], ["place in its publisher's order", any.n >= 0 ? any.n : null]]) {
    if (value !== null && value !== undefined && value !== "") {
      about.append(h("dt", {}, name), h("dd", name === "key" ? { class: "key" } : {}, String(value)));
    }
  }
  return [about, h("ul", {}, ...known.flatMap(([router, record]) => at(router, record))), ...problems];
}

function at(router, record) {
  const lines = [`${router}${record.home === router ? ", its home" : ""}: ${STATES[record.state] ?? record.state}`];
  if (record.awaitedRouters?.length) lines.push(`waits for router ${record.awaitedRouters.join(", ")}`);
  if (record.orphans?.length) lines.push(`waits for ${record.orphans.join(", ")}, whose router is not in contact`);
  for (const [subscriber, state] of Object.entries(record.subscribers ?? {})) lines.push(`subscriber ${subscriber}: ${state}`);
  return [h("li", {}, h("b", {}, lines[0]), ...lines.slice(1).map((line) => h("div", {}, line)))];
}
