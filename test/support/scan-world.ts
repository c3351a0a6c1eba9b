import type { Clock } from '../../src/base/clock.ts';
import { startDaemon, type TestDaemon } from './daemon.ts';
import { eventsOf, postsOf } from './events.ts';
import { message, sendMail } from './mail.ts';
import { type Receiver, startReceiver } from './receiver.ts';
import type { FakeScanner } from './scanners.ts';
import { until } from './until.ts';

export type Env = Readonly<Record<string, string>>;

export interface World {
  readonly running: TestDaemon;
  readonly hook: Receiver;
}

/** A daemon, and a route to an endpoint. */
export async function startWorld(env: Env, options: { readonly clock?: Clock } = {}): Promise<World> {
  const hook = await startReceiver();
  const running = await startDaemon(env, options);
  await running.api('/inbound/add-domain', { domain: 'in.test' });
  await running.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
  return { running, hook };
}

export const stopWorld = async ({ running, hook }: World, ...scanners: readonly FakeScanner[]) => {
  await running.stop();
  await Promise.all([hook, ...scanners].map((part) => part.stop()));
};

export const send = ({ running: { smtp } }: World, subject: string, text = 'Hello') =>
  sendMail(smtp, { from: 'ada@example.org', to: 'box@in.test' }, message(subject, text));

export const eventsAt = (hook: Receiver): any[] => postsOf(hook.requests).flatMap(eventsOf);

/** The messages that were posted, by their subject. */
export async function posted({ hook }: World, count: number): Promise<ReadonlyMap<string, any>> {
  await until(`${count} posts`, () => eventsAt(hook).length >= count, 30_000);
  return new Map(eventsAt(hook).map(({ msg }) => [msg.subject, msg]));
}
