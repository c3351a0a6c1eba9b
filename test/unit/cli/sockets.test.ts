import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { inheritedSockets, SocketFault } from '../../../src/cli/systemd.ts';
import { openSocket, spawnWithSocket } from '../../support/service-manager.ts';

const PID = 4711;
const handed = (fds: string, names?: string) => ({ LISTEN_PID: String(PID), LISTEN_FDS: fds, LISTEN_FDNAMES: names });

describe('inherited sockets', () => {
  it('are none by default', () => {
    expect(inheritedSockets({}, PID)).to.deep.equal([]);
    expect(inheritedSockets({ LISTEN_PID: String(PID) }, PID)).to.deep.equal([]);
    expect(inheritedSockets(handed('0', ''), PID)).to.deep.equal([]);
  });

  it('are ignored if meant for another process', () => {
    expect(inheritedSockets({ ...handed('1', 'smtp'), LISTEN_PID: '4712' }, PID)).to.deep.equal([]);
    expect(inheritedSockets({ LISTEN_FDS: '1', LISTEN_FDNAMES: 'smtp' }, PID)).to.deep.equal([]);
    expect(inheritedSockets({ ...handed('garbage'), LISTEN_PID: '04711' }, PID)).to.deep.equal([]);
  });

  it('are named by descriptors from 3 on, in order', () => {
    expect(inheritedSockets(handed('3', 'smtp:smtp:http'), PID)).to.deep.equal([
      { name: 'smtp', fd: 3 },
      { name: 'smtp', fd: 4 },
      { name: 'http', fd: 5 },
    ]);
  });

  it('are called unknown if the manager gives no names', () => {
    expect(inheritedSockets(handed('1'), PID)).to.deep.equal([{ name: 'unknown', fd: 3 }]);
  });

  for (const fds of ['-1', '1e3', '0x1', ' 1', '1 ', '65', '99999999999999999999', 'NaN', '1.5', '', '١']) {
    it(`rejects ${JSON.stringify(fds)} as a count`, () => {
      expect(() => inheritedSockets(handed(fds, 'smtp'), PID)).to.throw(SocketFault);
    });
  }

  for (const [fds, names] of [
    ['2', 'smtp'],
    ['1', 'smtp:http'],
    ['1', 'sm\ntp'],
    ['1', 'é'],
    ['1', 'a'.repeat(256)],
  ] as const) {
    it(`rejects ${fds} sockets named ${JSON.stringify(names.slice(0, 20))}`, () => {
      expect(() => inheritedSockets(handed(fds, names), PID)).to.throw(SocketFault);
    });
  }
});

const CHILD = `
  import { createServer } from 'node:net';
  const { inheritedSockets } = await import(process.argv[1]);
  const [socket] = inheritedSockets(process.env, process.pid);
  const server = createServer((client) => { client.end('220 ' + socket.name + ' on ' + socket.fd); server.close(); });
  server.listen({ fd: socket.fd });
`;

describe('an inherited socket', () => {
  it('is used by the child, and a client that connected earlier is answered', async () => {
    // systemd opens the socket before the service runs, so a client may come first.
    const socket = await openSocket();
    const module = new URL('../../../src/cli/systemd.ts', import.meta.url).href;
    const child = spawnWithSocket(socket.fd, ['--input-type=module', '-e', CHILD, module], {
      PATH: process.env['PATH'],
    });
    const ended = once(child, 'exit');
    socket.release();
    const client = connect(socket.port, '127.0.0.1');
    expect(await text(client)).to.equal('220 smtp on 3');
    expect(await ended).to.deep.equal([0, null]);
  });
});
