// rhea on one link that resumes: it is told its unsettled map and what to do, and tells what it sees. See resuming.py.
//
//   node rhea_resuming.js publish|subscribe HOST:PORT '{"container", "link", "address", "unsettled", "generation", "epoch", …}'
//
// rhea can neither send an unsettled map nor a resumed transfer, nor tell one, nor answer an echo: that is done here by
// hand, on the performatives that it is about to write or has just read.
'use strict';

const readline = require('node:readline');
const rhea = require('rhea');

const UNSETTLED = 7; // places of fields: this one in an attach,
const STATE = 7; // this one in a transfer
const STATES = { received: 0x23, accepted: 0x24, rejected: 0x25, released: 0x26, modified: 0x27 };
const NAMES = Object.fromEntries(Object.entries(STATES).map(([name, code]) => [code, name]));

const [role, router, given] = process.argv.slice(2);
const own = JSON.parse(given);
const [host, port] = router.split(':');
const tell = (event, what = {}) => process.stdout.write(JSON.stringify({ event, ...what }) + '\n');
const nameOf = (state) => NAMES[Number(state?.descriptor)] ?? null;

// Keys as binary, states as described lists; rhea would write the keys as strings.
function encoded(map) {
    const state = (name) => (name === null ? null : { toRheaTyped: () => rhea.types.wrap_described([], STATES[name]) });
    return rhea.types.wrap(new Map(Object.entries(map).map(([tag, name]) => [Buffer.from(tag), state(name)])));
}

function decoded(map) {
    return map ? Object.fromEntries(Object.entries(map).map(([tag, state]) => [tag, nameOf(state)])) : null;
}

const properties = {};
if (own.generation) properties['oncemesh:generation'] = Buffer.from(own.generation, 'hex');
if (own.epoch) properties['oncemesh:epoch'] = own.epoch;
const terminus = { address: own.address, durable: 2, expiry_policy: 'connection-close', timeout: 60 };
const deliveries = new Map(); // by tag

const container = rhea.create_container({ id: own.container });
const connection = container.connect({ host, port: Number(port), reconnect: false });
const options = { name: own.link, rcv_settle_mode: 1, properties, autosettle: true };

connection.once('connection_open', () => {
    const link = role === 'publish' ? sender() : receiver();
    if (own.unsettled) link.local.attach.value[UNSETTLED] = encoded(own.unsettled);
    link.local.attach.incomplete_unsettled = own.incomplete;
});

function tellAttached(link, end) {
    const { unsettled, incomplete_unsettled: incomplete, properties } = link.remote.attach;
    tell('attached', {
        unsettled: decoded(unsettled),
        incomplete,
        generation: properties['oncemesh:generation']?.toString('hex') ?? null,
        epoch: properties['oncemesh:epoch'],
        timeout: end.timeout,
        router: connection.remote.open.properties?.router ?? null,
    });
}

function sender() {
    const link = connection.open_sender({ ...options, target: terminus });
    const resumed = new Set();
    const output = link.session.output;
    link.session.output = function (frame, payload) {
        if (frame.delivery_tag && resumed.delete(String(frame.delivery_tag))) frame.resume = true;
        return output.call(this, frame, payload);
    };
    link.once('sender_open', () => tellAttached(link, link.target));
    link.once('sendable', () => tell('sendable'));
    for (const outcome of ['accepted', 'rejected']) {
        link.on(outcome, ({ delivery }) => {
            if (delivery.settled) return; // told once more, as the router has settled it in turn
            tell('outcome', { tag: String(delivery.tag), outcome });
        });
    }
    commands.transfer = ({ tag, body, resume }) => {
        if (resume) resumed.add(tag);
        deliveries.set(tag, link.send({ body: rhea.message.data_section(Buffer.from(body)) }, Buffer.from(tag)));
    };
    commands.settle = ({ tag }) => deliveries.get(tag).update(true);
    return link;
}

function receiver() {
    const link = connection.open_receiver({ ...options, source: terminus, autoaccept: false, credit_window: 0 });
    const { session } = link;
    const onTransfer = session.on_transfer;
    let first = {};
    session.on_transfer = function (frame) {
        if (frame.performative.delivery_tag) first = frame.performative;
        onTransfer.call(this, frame);
    };
    const onFlow = link.on_flow;
    link.on_flow = function (frame) {
        onFlow.call(this, frame);
        if (!own.answers || !frame.performative.echo) return;
        this.issue_flow = true; // with the next frames
        connection._register();
    };
    link.once('receiver_open', () => tellAttached(link, link.source));
    link.on('settled', ({ delivery }) => tell('settled', { tag: String(delivery.tag) }));
    link.add_credit(own.credit);
    link.on('message', ({ delivery, message }) => {
        const tag = String(delivery.tag);
        deliveries.set(tag, delivery);
        const flags = { resume: Boolean(first.resume), settled: Boolean(first.settled), aborted: Boolean(first.aborted) };
        const state = nameOf(first.value[STATE]);
        if (state || flags.settled) link.add_credit(1); // nobody answers this one
        tell('transfer', { tag, body: String(message.body.content), state, ...flags });
    });
    commands.accept = ({ tag }) => {
        deliveries.get(tag).accept(); // in mode second this does not settle
        link.add_credit(1);
    };
    return link;
}

const commands = {
    close: () => connection.close(),
    detach: () => (connection.find_sender(() => true) ?? connection.find_receiver(() => true)).close(),
};
connection.on('sender_close', () => connection.close());
connection.on('receiver_close', () => connection.close());
connection.on('connection_close', () => tell('closed'));
connection.on('disconnected', () => tell('disconnected'));
readline.createInterface({ input: process.stdin }).on('line', (line) => {
    const command = JSON.parse(line);
    commands[command.do](command);
});
