import { once } from 'node:events';
import { connect } from 'node:net';
import { expect } from 'chai';
import { type Sink, startSink } from '../../bench/measure.ts';

const markOf = (n: number) => `benchmark-message-${String(n).padStart(8, '0')}`;

/** A POST whose body comes in these pieces, each on its own. Ends when there is an answer. */
async function post(url: string, ...pieces: string[]): Promise<void> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1').setNoDelay(true);
  const answered = once(socket, 'data');
  await new Promise((done) =>
    socket.write(`POST /hook HTTP/1.1\r\nContent-Length: ${pieces.join('').length}\r\n\r\n`, done),
  );
  for (const piece of pieces) await new Promise((done) => socket.write(piece, done));
  await answered;
  socket.destroy();
}

describe('the sink of the benchmark', () => {
  let sink: Sink;
  beforeEach(async () => {
    sink = await startSink([0, 1, 0], true);
  });
  afterEach(() => sink.stop());

  it('counts and times requests to endpoints that answer first, and nothing else', async () => {
    const [first = '', slow = '', last = ''] = sink.urls;
    for (const [n, url] of [first, slow, last, first].entries()) await post(url, `a=1&b=${markOf(n)}`);
    expect((await sink.seen()).count).to.equal(3);
    expect(sink.expect(4)).to.equal(3);
    expect((await sink.arrivals()).map(([number]) => number)).to.have.members([0, 2, 3]);
  });

  it('finds a mark wherever the body is split', async () => {
    const body = `a=${'x'.repeat(20)}${markOf(7)}&b=1`;
    for (let at = 1; at < body.length; at++) {
      const fresh = body.replace(markOf(7), markOf(at));
      await post(sink.urls[0] ?? '', fresh.slice(0, at), fresh.slice(at));
    }
    expect((await sink.arrivals()).length).to.equal(body.length - 1);
  });
});
