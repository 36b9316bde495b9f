// rhea as its documentation teaches it: publisher or subscriber, see tests/interop/foreign.py.
'use strict';

const readline = require('node:readline');
const rhea = require('rhea');

const [role, router, address, count, size, mode, when] = process.argv.slice(2);
const total = Number(count);
const bytes = Number(size);
const to = process.env.ANONYMOUS ? address : undefined;
const inFlight = Math.max(10, Math.min(1000, Math.floor((8 << 20) / bytes)));
const [host, port] = router.split(':');

const tell = (event, what = {}) => process.stdout.write(JSON.stringify({ event, ...what }) + '\n');
const now = () => Number(process.hrtime.bigint() / 1000n);

const container = rhea.create_container();
const over = process.env.WEBSOCKET // the URL of a router
    ? { connection_details: container.websocket_connect(require('ws'))(process.env.WEBSOCKET, ['amqp'], {}) }
    : { host, port: Number(port) };
const connection = container.connect({ ...over, reconnect: false });
const input = readline.createInterface({ input: process.stdin });
input.on('close', () => connection.close());

function publish() {
    const accepted = [];
    const times = [];
    let sent = 0;
    let refused = 0;
    const sender = connection.open_sender({ target: to ? {} : address, rcv_settle_mode: mode === 'second' ? 1 : 0 });

    function pump() {
        while (sender.sendable() && sent < total && sent - accepted.length < inFlight) {
            const body = Buffer.alloc(bytes, '.');
            body.write(`${sent} `);
            sender.send({ to, subject: sent % 2 ? 'odd' : 'even', body: rhea.message.data_section(body) }, String(sent));
            sent++;
        }
    }

    sender.once('sender_open', () => tell('attached'));
    sender.on('sendable', pump);
    sender.on('accepted', (context) => {
        if (mode === 'second') {
            if (context.delivery.settled) return; // told once more, as the router has settled it in turn
            context.delivery.update(true); // rhea settles by itself only what is settled to it
        }
        accepted.push(Number(context.delivery.tag));
        times.push(now());
        if (accepted.length === total) tell('complete');
        pump();
    });
    sender.on('rejected', () => refused++);
    sender.on('released', () => refused++);
    connection.on('connection_close', () => tell('done', { numbers: accepted, times, refused }));
}

function subscribe() {
    const numbers = [];
    const times = [];
    const held = [];
    let damaged = 0;
    let settled = 0;
    const selector = process.env.SELECTOR;
    const receiver = connection.open_receiver({
        source: selector ? { address, filter: rhea.filter.selector(selector) } : address,
        autoaccept: false,
        rcv_settle_mode: mode === 'second' ? 1 : 0,
    });

    function give(delivery) {
        times.push(now());
        delivery.accept(); // in mode second this does not settle
    }

    function checkComplete() {
        if (numbers.length === total && total === (mode === 'second' ? settled : times.length)) tell('complete');
    }

    receiver.once('receiver_open', () => tell('attached'));
    receiver.on('message', (context) => {
        const body = context.message.body.content;
        numbers.push(parseInt(body.toString('latin1', 0, 12), 10));
        damaged += body.length !== bytes;
        if (when === 'hold') held.push(context.delivery);
        else give(context.delivery);
        if (numbers.length === total) {
            tell('received');
            checkComplete();
        }
    });
    receiver.on('settled', () => {
        settled++;
        checkComplete();
    });
    input.on('line', (line) => {
        if (line === 'accept') held.forEach(give);
        checkComplete();
    });
    connection.on('connection_close', () => tell('done', { numbers, times, damaged, settled }));
}

(role === 'publish' ? publish : subscribe)();
