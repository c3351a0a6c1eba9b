import type { Verdicts } from '../../src/mail/addresses/envelope.ts';
import type { ApiWorld } from './api.ts';
import { given, mail } from './spool.ts';

/** The mail of the example of /inbound/pull, and the names of its delivery and of its first lease. */
export const PULLED = '01kcexamplepulled000000000';

const VERDICTS: Verdicts = {
  spf: { result: 'pass', detail: 'sender SPF authorized' },
  dkim: { signed: false, valid: false },
  dmarc: { result: 'pass', policy: 'none', aligned: true },
  arc: { result: 'none' },
};

/** A route whose mail is pulled, and a message that waits for it. */
export async function putPulled(world: ApiWorld, account: string): Promise<void> {
  const { store, spool, clock } = world;
  const [recipient, routeId, url] = ['laptop@inbound.example.com', '1.9', 'pull:'];
  const createdAt = new Date(clock.now());
  const domain = 'inbound.example.com';
  await store.inboundRoutes.insert({ id: routeId, account, domain, pattern: 'laptop', url, createdAt });
  const options = { account, url, routeId, pattern: 'laptop', recipients: [recipient], id: PULLED };
  const body = { kind: 'memory', bytes: new Uint8Array(Buffer.from('Subject: Hi\r\n\r\nText\r\n')) } as const;
  const { message, deliveries } = mail(clock, { ...options, body });
  await spool.accept(given({ ...message, trace: '' }), deliveries);
  for (const { id } of deliveries) await spool.keepVerdicts(id, VERDICTS);
}
