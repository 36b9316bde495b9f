// mqtt.js over WebSocket: subscribes, publishes to itself, and tells what it was sent; see tests/interop/test_websocket.py.
'use strict';

const mqtt = require('mqtt');

const [url, topic, count] = process.argv.slice(2);
const client = mqtt.connect(url, { protocolVersion: 5, reconnectPeriod: 0 });
const numbers = [];

client.on('error', (error) => { console.error(error); process.exit(1); });
client.on('connect', async () => {
    await client.subscribeAsync(topic, { qos: 2 });
    for (let number = 0; number < Number(count); number++) client.publish(topic, String(number), { qos: 2 });
});
client.on('message', async (_, payload) => {
    if (numbers.push(Number(payload)) < Number(count)) return;
    await client.endAsync();
    console.log(JSON.stringify(numbers));
});
