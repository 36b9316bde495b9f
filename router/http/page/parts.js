// What all views share: elements, rows that stay what they are from picture to picture, and how figures read.
// Text from outside becomes text, never markup: nothing here or elsewhere in the console takes HTML. What would turn the
// text around it, or cannot be seen, is shown as code, as on a terminal (`router/text/printable.py`).

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

const UNFIT = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
const printable = (text) => String(text).replace(UNFIT, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (typeof child === "string" ? printable(child) : child)));
  return element;
}

export const h = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

/** Set the text, if it is another one: who reads or selects is not disturbed. */
export function say(element, text) {
  const shown = printable(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** Children of `parent`, one for each of `list`, in its order; those of a key that was there before stay. */
export function keyed(parent, list, key, make, update) {
  const known = parent.keyed ?? (parent.keyed = new Map());
  const wanted = new Map(list.map((one) => [key(one), one]));
  for (const [name, child] of known) if (!wanted.has(name)) { child.remove(); known.delete(name); }
  let at = parent.firstChild;
  for (const [name, one] of wanted) {
    let child = known.get(name);
    if (child === undefined) { child = make(one); known.set(name, child); }
    if (child === at) at = at.nextSibling; else parent.insertBefore(child, at);
    update(child, one);
  }
}

/** A table's rows. `cells` gives for each a list of texts, or of nodes' makers; the headings are labels on a phone. */
export function rows(table, list, key, cells) {
  const labels = table.labels ?? (table.labels = [...table.tHead.rows[0].cells]);
  table.classList.add("cards");
  keyed(table.tBodies[0], list, key, () => {
    const row = h("tr");
    for (const label of labels) row.append(h("td", { class: label.className, "data-label": label.textContent }));
    return row;
  }, (row, one) => cells(one).forEach((cell, index) => {
    if (typeof cell === "function") cell(row.cells[index]); else say(row.cells[index], cell);
  }));
}

/** A cell with a state in words and colour. */
export const badge = (level, text) => (cell) => {
  const mark = cell.firstChild ?? cell.appendChild(h("span"));
  mark.className = `state ${level}`;
  say(mark, text);
};

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const count = (value) => whole.format(value);
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

function scaled(value, step, units) {
  let unit = 0;
  while (value >= step * 0.9995 && unit < units.length - 1) { value /= step; unit += 1; }
  return `${unit === 0 || value >= 100 ? whole.format(value) : value.toPrecision(value >= 10 ? 3 : 2)} ${units[unit]}`.trim();
}

export const rate = (perSecond) => (perSecond > 0 && perSecond < 10 ? perSecond.toFixed(1) : count(perSecond)) + "/s";
export const size = (bytes) => scaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
export const flow = (perSecond) => `${scaled(perSecond, 1000, ["B", "kB", "MB", "GB"])}/s`;

export function duration(seconds) {
  if (seconds < 0.001) return `${(seconds * 1000).toFixed(2)} ms`;
  if (seconds < 1) return `${(seconds * 1000).toPrecision(seconds < 0.01 ? 2 : 3)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
  if (hours === 0) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return days === 0 ? `${hours} h ${minutes % 60} min` : `${days} d ${hours % 24} h`;
}

export const linkName = (link) => `${link.container}/${link.link}`;
/** Of no other link: names may have any characters. */
export const linkKey = (link) => JSON.stringify([link.router, link.role, link.container, link.link, link.address, link.user]);
