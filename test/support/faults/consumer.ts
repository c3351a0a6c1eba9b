/**
 * A process of its own that pulls mail, writes down what it got and acknowledges it, until it is killed:
 * `node consumer.ts BASE KEY FILE after|before MS`. `before` acknowledges first, as no consumer should; MS is what
 * the work on an answer takes.
 */

import { closeSync, fdatasyncSync, openSync, writeSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { hashesOf } from './hash.ts';

/** Short, so that what a killed consumer held is soon handed out again. */
const LEASE_S = 5;
const AT_ONCE = 10;

const [base = '', key = '', file = '', order = 'after', workMs = ''] = process.argv.slice(2);

/** Not that of support/daemon.ts, which loads the whole daemon: this process is started again and again. */
async function api(path: string, params: object, signal?: AbortSignal): Promise<any> {
  const response = await fetch(`${base}/api/1.0${path}.json`, {
    method: 'POST',
    body: JSON.stringify({ key, ...params }),
    ...(signal && { signal }),
  });
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.json();
}

/** A line for each message, on the disk before it counts: its id and the SHA-256 of what was in it. */
function write(mails: readonly { readonly id: string; readonly body: string }[]): void {
  const fd = openSync(file, 'a');
  for (const { id, body } of mails)
    writeSync(fd, `${id} ${hashesOf(Buffer.from(body, 'base64').toString()).join(',')}\n`);
  fdatasyncSync(fd);
  closeSync(fd);
}

/** SIGTERM ends it when it is done with what it holds. */
const ending = new AbortController();
process.once('SIGTERM', () => ending.abort());

while (!ending.signal.aborted) {
  try {
    const mails = await api('/inbound/pull', { limit: AT_ONCE, lease: LEASE_S, wait: 5 }, ending.signal);
    if (mails.length === 0) continue;
    const leases = mails.map(({ lease }: { lease: string }) => lease);
    if (order === 'before') await api('/inbound/ack', { leases });
    await setTimeout(Number(workMs));
    write(mails);
    if (order !== 'before') await api('/inbound/ack', { leases }).catch(() => {});
  } catch {
    // The daemon was killed, and comes back; or this process is to end.
    await setTimeout(50);
  }
}
