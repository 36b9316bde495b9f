// rhea as its documentation teaches it: publisher or subscriber, see tests/interop/foreign.py.
'use strict';

const readline = require('node:readline');
const rhea = require('rhea');

const [role, routers, address, count, size, mode, when] = process.argv.slice(2);
const total = Number(count);
const bytes = Number(size);
const to = process.env.ANONYMOUS ? address : undefined;
const urls = routers.split(',').map((router) => router.split(':')).map(([host, port]) => ({ host, port: Number(port) }));
const roams = urls.length > 1;
const inFlight = roams ? 100 : Math.max(10, Math.min(1000, Math.floor((8 << 20) / bytes)));

const tell = (event, what = {}) => process.stdout.write(JSON.stringify({ event, ...what }) + '\n');
const now = () => Number(process.hrtime.bigint() / 1000n);

const container = rhea.create_container(roams ? { id: `rhea-${role}` } : {});
let dialled = 0;
const over = process.env.WEBSOCKET // the URL of a router
    ? { connection_details: container.websocket_connect(require('ws'))(process.env.WEBSOCKET, ['amqp'], {}) }
    : { connection_details: () => urls[dialled++ % urls.length] };
const again = roams ? { reconnect: true, initial_reconnect_delay: 50, max_reconnect_delay: 500 } : { reconnect: false };
const connection = container.connect({ ...over, ...again });
const input = readline.createInterface({ input: process.stdin });
input.on('close', () => {
    connection.find_receiver(() => true)?.close(); // a durable subscriber ends with this
    connection.close();
});

function publish() {
    const accepted = [];
    const times = [];
    const todo = [...Array(total).keys()];
    const doubtful = new Set();
    let refused = 0;
    const sender = connection.open_sender({ target: to ? {} : address, rcv_settle_mode: mode === 'second' ? 1 : 0 });

    function pump() {
        while (sender.sendable() && todo.length && doubtful.size < inFlight) {
            const number = todo.shift();
            const body = Buffer.alloc(bytes, '.');
            body.write(`${number} `);
            doubtful.add(number);
            sender.send({ to, subject: number % 2 ? 'odd' : 'even', body: rhea.message.data_section(body) }, String(number));
        }
    }

    sender.once('sender_open', () => tell('attached'));
    sender.on('sendable', pump);
    connection.on('disconnected', () => {
        todo.unshift(...doubtful);
        doubtful.clear();
    });
    sender.on('accepted', (context) => {
        if (mode === 'second') {
            if (context.delivery.settled) return; // told once more, as the router has settled it in turn
            context.delivery.update(true); // rhea settles by itself only what is settled to it
        }
        const number = Number(context.delivery.tag);
        if (!doubtful.delete(number)) return;
        accepted.push(number);
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
    const seen = new Set();
    const selector = process.env.SELECTOR;
    const durable = roams && address.startsWith('topic/') ? { durable: 2, expiry_policy: 'never' } : {};
    const receiver = connection.open_receiver({
        name: roams ? 'durable' : undefined,
        source: selector ? { address, filter: rhea.filter.selector(selector) } : { address, ...durable },
        autoaccept: false,
        rcv_settle_mode: mode === 'second' ? 1 : 0,
    });

    function give(delivery) {
        times.push(now());
        delivery.accept(); // in mode second this does not settle
    }

    function checkComplete() {
        if (seen.size === total && numbers.length === (mode === 'second' ? settled : times.length)) tell('complete');
    }

    receiver.once('receiver_open', () => tell('attached'));
    receiver.on('message', (context) => {
        const body = context.message.body.content;
        const number = parseInt(body.toString('latin1', 0, 12), 10);
        numbers.push(number);
        damaged += body.length !== bytes;
        if (when === 'hold') held.push(context.delivery);
        else give(context.delivery);
        if (seen.has(number)) return;
        seen.add(number);
        if (roams && [Math.floor(total / 3), Math.floor(total * 2 / 3)].includes(seen.size)) tell('part');
        if (seen.size === total) {
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
