// rhea asks and answers as its examples do (request/response): see tests/interop/foreign.py. One request more than COUNT
// has a reply-to that has ended.
'use strict';

const rhea = require('rhea');

const [role, router, address, count] = process.argv.slice(2);
const [host, port] = router.split(':');
const total = Number(count);

const tell = (event, what = {}) => process.stdout.write(JSON.stringify({ event, ...what }) + '\n');

const container = rhea.create_container();
const connection = container.connect({ host, port: Number(port), reconnect: false });
process.stdin.on('end', () => connection.close()).resume();

function ask() {
    const answers = [];
    const sender = connection.open_sender(address);
    const receiver = connection.open_receiver({ source: { dynamic: true } });
    const next = () =>
        sender.send({ reply_to: receiver.source.address, correlation_id: answers.length, body: `request ${answers.length}` });

    receiver.once('receiver_open', () => {
        tell('attached');
        if (sender.sendable()) next();
        else sender.once('sendable', next);
    });
    receiver.on('message', (context) => {
        if (context.message.correlation_id !== answers.length) throw new Error('another answer was expected');
        answers.push(context.message.body);
        if (answers.length < total) return next();
        const over = connection.open_receiver({ source: { dynamic: true } });
        over.once('receiver_open', () => over.close());
        over.once('receiver_close', () => {
            sender.send({ reply_to: over.source.address, body: 'late' });
            tell('complete');
        });
    });
    connection.on('connection_close', () => tell('done', { answers }));
}

function answer() {
    let accepted = 0;
    const refused = [];
    connection.open_receiver(address).once('receiver_open', () => tell('attached'));
    const sender = connection.open_sender({ target: {} });
    connection.on('message', ({ message }) => {
        const { reply_to: to, correlation_id } = message;
        sender.send({ to, correlation_id, body: message.body.toUpperCase() });
    });
    sender.on('accepted', () => accepted++);
    sender.on('rejected', (context) => {
        refused.push(context.delivery.remote_state.error.condition);
        tell('complete');
    });
    connection.on('connection_close', () => tell('done', { accepted, refused }));
}

connection.once('connection_open', role === 'ask' ? ask : answer);
