import type { Clock } from '../base/clock.ts';
import type { Codec, Heard, Reason } from './reply.ts';
import { isReplyTo, judge } from './reply.ts';
import type { Server } from './servers.ts';
import { sendTcp, sendUdp } from './transport.ts';
import type { RecordType } from './types.ts';

interface RoundDeps {
  readonly clock: Clock;
  readonly codec: Codec;
  readonly newId: () => number;
}

/** At least so many datagrams before a question is given up, over all servers. */
export const TURNS = 4;
/** A server as text, to compare. */
export function keyOf(server: Server): string {
  return `${server.address} ${server.port}`;
}

/** The order in which the servers are asked, the preferred one first, until there are enough turns. */
export function turnsOf(servers: readonly Server[], preferred: string): Server[] {
  const order = [...servers].sort((a, b) => Number(keyOf(b) === preferred) - Number(keyOf(a) === preferred));
  const turns: Server[] = [];
  for (let round = 0; round < 2 || turns.length < TURNS; round++) {
    if (order.length === 0) break;
    turns.push(...order);
  }
  return turns;
}

/**
 * Takes the turns one after the other. An earlier server is still listened to while a later one is asked: a slow answer is
 * an answer. A server that said no is not asked again; one that is unreachable is, for it may be starting.
 */
export function startRound(
  deps: RoundDeps,
  turns: readonly Server[],
  name: string,
  type: RecordType,
  ms: number,
  done: (heard: Heard, server?: Server) => void,
) {
  const open = new Set<() => void>();
  const said = new Set<string>();
  const away = new Set<string>();
  let reason: Reason = 'timeout';
  let turn = 0;
  let over = false;
  let cancelTurn = () => {};
  const cancelAll = deps.clock.after(ms, () => end({ kind: 'failure', reason }));

  function end(heard: Heard, server?: Server): void {
    if (over) return;
    over = true;
    cancelAll();
    cancelTurn();
    for (const close of open) close();
    done(heard, server);
  }

  function failed(server: Server, why: Reason): void {
    reason = why;
    if (why === 'unreachable') away.add(keyOf(server));
    else said.add(keyOf(server));
    const next = turns[turn];
    if (turns.every((other) => said.has(keyOf(other)))) return end({ kind: 'failure', reason });
    if (next && !away.has(keyOf(next))) begin();
    else if (!next && open.size === 0) end({ kind: 'failure', reason });
  }

  function begin(): void {
    if (over) return;
    cancelTurn();
    let server = turns[turn++];
    while (server && said.has(keyOf(server))) server = turns[turn++];
    if (!server) {
      if (open.size === 0) end({ kind: 'failure', reason });
      return;
    }
    const asked = server;
    cancelTurn = deps.clock.after(ms / turns.length, begin);
    startTurn(deps, asked, name, type, open, (heard) => {
      if (over) return;
      if (heard.kind === 'reply') end(heard, asked);
      else failed(asked, heard.reason);
    });
  }

  return { begin: () => (turns.length > 0 ? begin() : end({ kind: 'failure', reason: 'unreachable' })), end };
}

/** One server: over UDP, without an OPT record if it does not know them, over TCP if the answer was cut. */
function startTurn(
  deps: RoundDeps,
  server: Server,
  name: string,
  type: RecordType,
  open: Set<() => void>,
  done: (heard: Heard) => void,
): void {
  function send(over: 'udp' | 'tcp', opt: boolean): void {
    const query = deps.codec.encode(deps.newId(), name, type, opt);
    let close = () => {};
    const finish = (next: () => void) => {
      open.delete(close);
      next();
    };
    close = (over === 'udp' ? sendUdp : sendTcp)(server, query, {
      failed: () => finish(() => done({ kind: 'failure', reason: 'unreachable' })),
      packet(bytes) {
        if (!isReplyTo(query, bytes)) return false;
        const reply = deps.codec.decode(bytes);
        finish(() => {
          if (reply?.truncated && over === 'udp') send('tcp', opt);
          else if (reply?.rcode === 1 && opt) send('udp', false);
          else done(judge(reply));
        });
        return true;
      },
    });
    open.add(close);
  }
  send('udp', true);
}
