import { createListenerFor, type Listener } from '../listener.ts';
import { openReception } from '../reception.ts';
import type { TlsSettings } from '../settings.ts';
import type { Side } from '../side.ts';
import type { Said } from '../verbs.ts';
import { createGate } from './gate.ts';
import { openHandingOver } from './handing-over.ts';
import { createLogins } from './logins.ts';
import { createSubmissionPolicy } from './policy.ts';
import { createRoom } from './room.ts';
import type { SubmissionDeps, SubmissionSettings } from './settings.ts';

/** Listens for mail that accounts hand over to be sent: with STARTTLS on some ports, under TLS from the start on others. */
export function createSubmission(settings: SubmissionSettings, deps: SubmissionDeps): Listener {
  const side = createSide(settings, deps);
  const listeners = [
    ...(settings.listen.length > 0 ? [createListenerFor(side, settings, deps)] : []),
    ...(settings.tlsListen.length > 0
      ? [createListenerFor(side, { ...settings, listen: settings.tlsListen, implicitTls: true }, deps)]
      : []),
  ];

  async function stop(graceMs?: number) {
    await Promise.all(listeners.map((listener) => listener.stop(graceMs)));
  }

  return Object.freeze({
    async start() {
      // The library would make up a certificate, and clients that do not look would believe it.
      if (settings.tlsListen.length > 0 && !settings.tls)
        throw new Error('submission with TLS from the first byte needs smtp.tls.cert and smtp.tls.key');
      try {
        for (const listener of listeners) await listener.start();
      } catch (error) {
        await stop(0);
        throw error;
      }
    },
    stop,
    addresses: () => listeners.flatMap((listener) => listener.addresses()),
    async reload(tls: TlsSettings | undefined) {
      for (const listener of listeners) await listener.reload(tls);
    },
    healthy: () => listeners.every((listener) => listener.healthy()),
  });
}

function createSide(settings: SubmissionSettings, deps: SubmissionDeps): Side {
  const room = createRoom(settings.maxBytesInData);
  const logins = createLogins(settings, deps);
  return Object.freeze({
    name: 'submission' as const,
    policy: createSubmissionPolicy(settings, { ...deps, room }),
    gate: (said: Said, connection: { readonly address: string; readonly offersTls: boolean }) =>
      createGate({ settings, logins, spool: deps.spool, meter: deps.meter, clock: deps.clock }, said, connection),
    receive(said: Said, address: string) {
      if (!said.who) throw new Error('DATA of nobody');
      return openReception(settings, {
        log: deps.log,
        keeping: openHandingOver({ ...deps, room, tracking: settings.tracking }, said.who, said, address),
      });
    },
  });
}
