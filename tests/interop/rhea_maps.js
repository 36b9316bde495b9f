// rhea with unsettled maps made by hand: tells the router's maps, and what is resumed. See test_unsettled_maps.py.
'use strict';

const rhea = require('rhea');

const [host, port] = process.argv[2].split(':');
const tell = (event, what = {}) => process.stdout.write(JSON.stringify({ event, ...what }) + '\n');
const accepted = { toRheaTyped: () => rhea.types.wrap_described([], 0x24) };

// Keys as text, states as their descriptors' codes.
function plain(map) {
    const states = {};
    if (map === null || map === undefined) return null;
    for (const [key, state] of Object.entries(map)) {
        states[key] = state === null || state === undefined ? 0 : Number(state.descriptor ?? -1);
    }
    return states;
}

const container = rhea.create_container();
const connection = container.connect({ host, port: Number(port), reconnect: false });
const unsettled = { known: accepted, doubtful: null };
const receiver = connection.open_receiver({ name: 'in', source: 'topic/x', rcv_settle_mode: 1, unsettled });
const sender = connection.open_sender({ name: 'out', target: 'topic/x', unsettled });
let attached = 0;

function onAttached(context) {
    const link = context.receiver || context.sender;
    tell('attached', {
        name: link.name,
        unsettled: plain(link.remote.attach.unsettled),
        incomplete: link.remote.attach.incomplete_unsettled,
    });
    attached++;
}

receiver.on('receiver_open', onAttached);
sender.on('sender_open', onAttached);
receiver.on('message', (context) => {
    tell('message', { tag: context.delivery.tag.toString(), body: context.message.body.content.toString() });
    sender.send({ body: 'back' }, 'fresh');
});
sender.on('accepted', () => connection.close());
connection.on('connection_close', () => tell('done'));
