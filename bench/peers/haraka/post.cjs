// A queue plugin: posts the raw message and answers 250 when the receiver has it, as gateways in front of a web application do.
const { Agent, request } = require('node:http');
const { URL } = require('node:url'); // plugins run in a context without globals

const { hostname, port, pathname } = new URL(process.env.SINK);
const agent = new Agent({ keepAlive: true, maxSockets: 50 });

exports.hook_queue = function (next, connection) {
  connection.transaction.message_stream.get_data((raw) => {
    const headers = { 'content-type': 'message/rfc822', 'content-length': raw.length };
    const post = request({ hostname, port, path: pathname, method: 'POST', agent, headers }, (answer) => {
      answer.resume();
      answer.once('end', () => next(answer.statusCode === 200 ? OK : DENYSOFT));
    });
    post.once('error', () => next(DENYSOFT));
    post.end(raw);
  });
};

// The client's name would be asked of the machine's name servers, which have nothing to do with what is measured.
exports.hook_lookup_rdns = (next) => next(OK, 'bench.sender.example');
