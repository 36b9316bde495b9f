// amqp10 (npm) as its documentation teaches it: publisher or subscriber, see tests/interop/foreign.py.
'use strict';

const readline = require('node:readline');
const { Client, Policy } = require('amqp10');

const [role, router, address, count, size, mode, when] = process.argv.slice(2);
const total = Number(count);
const bytes = Number(size);
const inFlight = Math.max(10, Math.min(1000, Math.floor((8 << 20) / bytes)));
const settleMode = mode === 'second' ? 1 : 0;

const tell = (event, what = {}) => process.stdout.write(JSON.stringify({ event, ...what }) + '\n');
const now = () => Number(process.hrtime.bigint() / 1000n);

const client = new Client(Policy.merge({ reconnect: { retries: 0 } }, Policy.Default));
client.policy.parseLinkAddress = (name) => ({ name }); // else what follows a slash is taken for a subject
const input = readline.createInterface({ input: process.stdin });

function finishWith(seen) {
    input.on('close', () => client.disconnect().then(() => {
        tell('done', seen());
        process.exit(0);
    }));
}

async function publish() {
    const accepted = [];
    const times = [];
    let refused = 0;
    const sender = await client.createSender(address, { attach: { rcvSettleMode: settleMode } });
    finishWith(() => ({ numbers: accepted, times, refused }));
    tell('attached');
    let sent = 0;
    function pump() {
        while (sent < total && sent - accepted.length - refused < inFlight) {
            const number = sent++;
            sender.send(Buffer.from(`${number} `.padEnd(bytes, "."))).then(() => {
                accepted.push(number);
                times.push(now());
                if (accepted.length === total) tell('complete');
                pump();
            }, () => { refused++; pump(); });
        }
    }
    pump();
}

async function subscribe() {
    const numbers = [];
    const times = [];
    const held = [];
    let damaged = 0;
    const receiver = await client.createReceiver(address, {
        attach: { rcvSettleMode: 0 },
        creditQuantum: 200,
    });
    finishWith(() => ({ numbers, times, damaged, settled: 0 }));
    receiver.on('message', (message) => {
        const body = Buffer.from(message.body);
        numbers.push(parseInt(body.toString('latin1', 0, 12), 10));
        damaged += body.length !== bytes;
        if (when === 'hold') held.push(message);
        else give(message);
        if (numbers.length === total) {
            tell('received');
            if (when !== 'hold') tell('complete');
        }
    });
    function give(message) {
        times.push(now());
        receiver.accept(message);
    }
    input.on('line', (line) => {
        if (line !== 'accept') return;
        held.forEach(give);
        tell('complete');
    });
    tell('attached');
}

client.connect(`amqp://${router}`).then(role === 'publish' ? publish : subscribe)
    .catch((error) => { console.error(error); process.exit(1); });
