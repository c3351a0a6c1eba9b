import type { ChildDaemon } from '../child.ts';
import { type HostPort, message, openSession } from '../mail.ts';
import { until } from '../until.ts';
import { size } from './sizes.ts';

export const KILLS = size('SUBMISSION_KILLS', 10, 2);
/** Messages of each round, of which the kill cuts some off. */
export const MESSAGES = size('SUBMISSION_MESSAGES', 2000, 200);
const CONNECTIONS = 20;

interface KillLoad {
  /** Starts the daemon on what the last one left. */
  start(): Promise<ChildDaemon>;
  /** Once, after the first start. */
  prepare?(postern: ChildDaemon): Promise<void>;
  address(postern: ChildDaemon): HostPort;
  /** What a client says before its first mail. */
  readonly hello: readonly string[];
  readonly to: string;
  /** How often it is killed. */
  readonly kills: number;
}

/**
 * Sends rounds of messages, each with a subject of its own, and kills the daemon in the middle of every round but the
 * last. Answers the daemon that runs then, and what was acknowledged by any: subject → the reply of the 250.
 */
export async function loadThroughKills(
  load: KillLoad,
): Promise<{ readonly postern: ChildDaemon; readonly acknowledged: ReadonlyMap<string, string> }> {
  const acknowledged = new Map<string, string>();
  let postern = await load.start();
  await load.prepare?.(postern);
  for (let round = 0; round < load.kills; round++) {
    const before = acknowledged.size;
    const sending = send(load, postern, round, acknowledged);
    // Somewhere in the middle, at another point each round.
    const share = (round + 1) / (load.kills + 1);
    await until('some of the load', () => acknowledged.size - before >= MESSAGES * share * 0.9, 60_000);
    await postern.end('SIGKILL');
    await sending;
    postern = await load.start();
  }
  await send(load, postern, load.kills, acknowledged);
  return { postern, acknowledged };
}

/** Every message of a round once, over several sessions. Stops when the daemon dies. */
async function send(
  { address, hello, to }: KillLoad,
  postern: ChildDaemon,
  round: number,
  acknowledged: Map<string, string>,
): Promise<void> {
  let next = 0;
  async function session(): Promise<void> {
    const smtp = await openSession(address(postern));
    for (const line of hello) await smtp.say(line);
    while (next < MESSAGES) {
      const subject = `r${round}-m${next++}`;
      await smtp.say('MAIL FROM:<ada@example.org>');
      await smtp.say(`RCPT TO:<${to}>`);
      await smtp.say('DATA');
      const reply = await smtp.data(message(subject, subject.repeat(500)));
      if (reply.startsWith('250')) acknowledged.set(subject, reply);
    }
    smtp.close();
  }
  await Promise.allSettled(Array.from({ length: CONNECTIONS }, session));
}
