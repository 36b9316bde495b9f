// The map: routers where springs between neighbours put them, always in the same places for the same mesh.

import { count, duration, flow, keyed, linkKey, linkName, rate, say, svg } from "./parts.js";

const ROUNDS = 400;
const MOST_GLYPHS = { 1: 9, 2: 5 };
const LARGE = { width: 138, height: 62, lines: 1 }, SMALL = { width: 94, height: 77, lines: 2 };

/** Name -> [x, y], each from 0 to 1: begun on a circle, in the order of names, and moved by springs and repulsion. */
function places(names, links) {
  const at = new Map(names.map((name, index) => {
    const angle = (2 * Math.PI * index) / names.length - Math.PI / 2;
    return [name, [Math.cos(angle) + index * 1e-3, Math.sin(angle)]];
  }));
  const ideal = 2 / Math.sqrt(names.length);
  for (let round = 0; round < ROUNDS; round += 1) {
    const push = new Map(names.map((name) => [name, [0, 0]]));
    const move = (one, other, force) => {
      const [x, y] = at.get(one), [u, v] = at.get(other);
      const dx = x - u, dy = y - v, far = Math.hypot(dx, dy) || 1e-3, by = force(far) / far;
      push.get(one)[0] += dx * by; push.get(one)[1] += dy * by;
      push.get(other)[0] -= dx * by; push.get(other)[1] -= dy * by;
    };
    names.forEach((one, index) => names.slice(index + 1).forEach((other) => move(one, other, (far) => ideal * ideal / far)));
    for (const { a, b } of links) move(a, b, (far) => -far * far / ideal);
    const most = 0.2 * (1 - round / ROUNDS);
    for (const name of names) {
      const [dx, dy] = push.get(name), far = Math.hypot(dx, dy) || 1;
      const place = at.get(name);
      place[0] += (dx / far) * Math.min(far, most); place[1] += (dy / far) * Math.min(far, most);
    }
  }
  return upright(at);
}

/** Turned so that the longer way is the first axis, and stretched to a square of 1. */
function upright(at) {
  const points = [...at.values()], mean = [0, 1].map((axis) => points.reduce((sum, p) => sum + p[axis], 0) / points.length);
  let xx = 0, yy = 0, xy = 0;
  for (const p of points) { const dx = p[0] - mean[0], dy = p[1] - mean[1]; xx += dx * dx; yy += dy * dy; xy += dx * dy; }
  const turn = -0.5 * Math.atan2(2 * xy, xx - yy), cos = Math.cos(turn), sin = Math.sin(turn);
  for (const p of points) {
    const dx = p[0] - mean[0], dy = p[1] - mean[1];
    p[0] = dx * cos - dy * sin; p[1] = dx * sin + dy * cos;
  }
  const [first] = points;
  const flip = [0, 1].map((axis) => (first[axis] > 0 ? -1 : 1));  // the first name is at the left, and on top
  const [long, short] = [0, 1].map((axis) => {
    for (const p of points) p[axis] *= flip[axis];
    const least = Math.min(...points.map((p) => p[axis])), most = Math.max(...points.map((p) => p[axis]));
    return { least, span: most - least };
  });
  for (const p of points) {
    p[0] = long.span ? (p[0] - long.least) / long.span : 0.5;
    p[1] = short.span > 0.12 * long.span ? (p[1] - short.least) / short.span : 0.5;
  }
  return at;
}

export const levelOf = (router, waits) =>
  router.state === "ready" ? (waits.some((wait) => wait.router === router.name) ? "warn" : "ok")
    : router.state === "booting" ? "warn" : "bad";

export class MeshMap {
  constructor(element, select) {
    this.element = element;
    this.select = select;
    this.wires = element.appendChild(svg("g"));
    this.tags = element.appendChild(svg("g"));
    this.nodes = element.appendChild(svg("g"));
    this.shape = "";
    new ResizeObserver(() => this.picture && this.draw(this.picture, this.selected)).observe(element);
  }

  draw(picture, selected) {
    this.picture = picture; this.selected = selected;
    const names = picture.routers.map((router) => router.name).sort();
    const shape = JSON.stringify([names, picture.links.map(({ a, b }) => [a, b])]);
    if (shape !== this.shape) { this.shape = shape; this.at = places(names, picture.links); }
    const { width, height } = this.element.getBoundingClientRect();
    this.element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const box = width < 560 || names.length > 8 ? SMALL : LARGE, tall = width < 560 && names.length > 2;
    const wide = width - box.width - 16, high = height - box.height - 44;
    this.place = (name) => {
      const [x, y] = this.at.get(name), [across, down] = tall ? [y, x] : [x, y];
      return [8 + box.width / 2 + across * wide, 14 + box.height / 2 + down * high];
    };
    this.drawLinks(picture.links, width < 560);
    this.drawRouters(picture, box, selected);
  }

  drawLinks(links, narrow) {
    const key = ({ a, b }) => `${a} ${b}`;
    keyed(this.wires, links, key, () => svg("line"), (line, link) => {
      const [x1, y1] = this.place(link.a), [x2, y2] = this.place(link.b);
      const wide = 1.5 + 0.95 * Math.log10(1 + (link.a_to_b + link.b_to_a) / 100);
      Object.entries({ x1, y1, x2, y2, "stroke-width": link.up ? wide.toFixed(1) : 2 })
        .forEach(([name, value]) => line.setAttribute(name, value));
      line.setAttribute("class", link.up ? "wire" : "wire down");
    });
    keyed(this.tags, links, key, () => {
      const texts = [svg("text", { "text-anchor": "middle" }), svg("text", { "text-anchor": "middle", class: "quiet", y: 13 })];
      return svg("g", {}, svg("rect", { class: "tag", rx: 4 }), ...texts, svg("title"));
    }, (tag, link) => {
      const [x1, y1] = this.place(link.a), [x2, y2] = this.place(link.b);
      const above = Math.abs(x2 - x1) > 2 * Math.abs(y2 - y1) ? 19 : 0;  // a flat one is not hidden by what is said of it
      tag.setAttribute("transform", `translate(${(x1 + x2) / 2} ${(y1 + y2) / 2 - above})`);
      const [back, first, second, title] = tag.children;
      const trip = link.round_trip_s === null ? "" : ` · ${duration(link.round_trip_s)}`;
      say(first, link.up ? flow(link.a_to_b + link.b_to_a) : "down");
      say(second, narrow ? `cost ${link.cost}` : `cost ${link.cost}${link.up ? trip : ""}`);
      say(title, `${link.a} to ${link.b}: ${flow(link.a_to_b)}, back ${flow(link.b_to_a)}; cost ${link.cost}${trip} round trip`);
      const wide = 7 * Math.max(first.textContent.length, second.textContent.length * 0.86) + 6;
      Object.entries({ x: -wide / 2, y: -13, width: wide, height: 31 }).forEach(([name, value]) => back.setAttribute(name, value));
    });
  }

  drawRouters(picture, box, selected) {
    const clients = Map.groupBy(picture.clients, (client) => client.router);
    keyed(this.nodes, picture.routers, (router) => router.name, (router) => this.node(router.name), (node, router) => {
      const [x, y] = this.place(router.name), level = levelOf(router, picture.waits), there = "ingress" in router;
      node.setAttribute("transform", `translate(${x - box.width / 2} ${y - box.height / 2})`);
      node.setAttribute("class", `router ${level}${router.name === selected ? " selected" : ""}`);
      node.setAttribute("aria-pressed", String(router.name === selected));
      const [back, strip, name, state, inward, outward, glyphs] = node.children;
      back.setAttribute("width", box.width); back.setAttribute("height", box.height);
      strip.setAttribute("height", box.height);
      say(name, router.name.length > 12 ? `${router.name.slice(0, 11)}…` : router.name);
      say(state, router.state === "ready" ? "" : router.state);
      state.setAttribute("x", there ? box.width - 8 : 14);
      state.setAttribute("y", there ? 19 : 36);
      state.setAttribute("text-anchor", there ? "end" : "start");
      say(inward, there ? `in ${rate(router.ingress)}` : `for ${duration(router.away_s)}`);
      inward.setAttribute("class", there ? "rate-in" : "quiet");
      inward.setAttribute("y", there ? 38 : 52);
      say(outward, there ? `out ${rate(router.egress)}` : "");
      outward.setAttribute("x", box.lines === 1 ? box.width / 2 + 6 : 14);
      outward.setAttribute("y", box.lines === 1 ? 38 : 53);
      glyphs.setAttribute("transform", `translate(0 ${box.height - LARGE.height})`);
      node.setAttribute("aria-label", there
        ? `router ${router.name}, ${router.state}, ${rate(router.ingress)} in, ${rate(router.egress)} out, ${router.publishers} publishers, ${router.subscribers} subscribers`
        : `router ${router.name}, ${router.state}`);
      this.drawClients(glyphs, clients.get(router.name) ?? [], router, MOST_GLYPHS[box.lines]);
    });
  }

  node(name) {
    const node = svg("g", { tabindex: 0, role: "button" },
      svg("rect", { class: "box", rx: 7 }), svg("rect", { class: "strip", width: 5, rx: 2.5 }),
      svg("text", { class: "name", x: 14, y: 20 }), svg("text", { class: "quiet" }),
      svg("text", { class: "rate-in", x: 14, y: 38 }), svg("text", { class: "rate-out", y: 38 }), svg("g"));
    node.addEventListener("click", () => this.select(name));
    node.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.select(name); }
    });
    return node;
  }

  /** A glyph for each of the first, and how many more there are. */
  drawClients(group, clients, router, most) {
    const shown = clients.slice(0, most), total = (router.publishers ?? 0) + (router.subscribers ?? 0);
    const more = total > shown.length ? [{ more: total - shown.length }] : [];
    keyed(group, [...shown, ...more], (one) => (one.more ? "more" : linkKey(one)),
      (one) => one.more ? svg("text", { class: "quiet", y: 55 })
        : one.role === "publisher" ? svg("path", { d: "M-4.5 3.8 0 -4.4 4.5 3.8z" }, svg("title"))
          : svg("circle", { r: 4.2 }, svg("title")),
      (glyph, one) => {
        const index = one.more ? shown.length : shown.indexOf(one), x = 19 + index * 11;
        if (one.more) { glyph.setAttribute("x", x - 4); say(glyph, `+${count(one.more)}`); return; }
        glyph.setAttribute("transform", `translate(${x} 51)`);
        glyph.setAttribute("class", one.status === "suspended" ? "away" : one.role);
        say(glyph.firstChild, `${one.role} ${linkName(one)} on ${one.address}, ${one.status}`);
      });
  }
}
