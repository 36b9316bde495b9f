// rhea as its documentation teaches it, over TLS: URL CA [CERTIFICATE KEY]; publishes one message and receives it.

const fs = require('fs');
const rhea = require('rhea');

const [url, ca, cert, key] = process.argv.slice(2);
const at = new URL(url);
const options = { transport: 'tls', host: at.hostname, port: at.port, ca: [fs.readFileSync(ca)], reconnect: false };
if (at.username) {
    options.username = decodeURIComponent(at.username);
    options.password = decodeURIComponent(at.password);
}
if (cert) {
    Object.assign(options, { cert: fs.readFileSync(cert), key: fs.readFileSync(key), enable_sasl_external: true });
}

const connection = rhea.connect(options);
connection.open_receiver('topic/login');
connection.once('receiver_open', () => connection.open_sender('topic/login'));
connection.once('sendable', (context) => context.sender.send({ body: 'hello' }));
connection.on('message', (context) => console.log(`received ${context.message.body}`));
connection.on('accepted', (context) => {
    console.log('accepted');
    context.connection.close();
});
connection.on('connection_error', (context) => console.log('refused', context.connection.get_error().condition));
connection.on('disconnected', () => process.exit());
