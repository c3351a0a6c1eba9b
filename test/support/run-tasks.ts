import { join } from 'node:path';
import { createIds } from '../../src/base/ids.ts';
import { createRunningTime } from '../../src/base/running-time.ts';
import type { Task } from '../../src/base/service.ts';
import { createCounterRemoval } from '../../src/events/counter-removal.ts';
import { createRecorder } from '../../src/events/record.ts';
import { createScheduling } from '../../src/sending/scheduling.ts';
import { createTasks } from '../../src/tasks/index.ts';
import { createSweep } from '../../src/webhooks/outbox.ts';
import type { ApiWorld } from './api.ts';
import { NO_COPIES } from './copies.ts';
import { zoneResolver } from './zone.ts';

const outbox = { publish: () => Promise.resolve() };

/** Runs every task of the daemon once on what the API has in its store and on its queue. */
export async function runTasks({
  store,
  meter,
  clock,
  log,
  lists,
  ownership,
  spool,
  senders,
  exportsDir,
}: ApiWorld): Promise<void> {
  const ids = createIds(clock);
  const resolver = zoneResolver({});
  const tasks = createTasks(
    {
      purge: { keepDeadDays: 30, keepDeliveredHours: 1, keepDeliveredBytes: 1 },
      batches: { retryHours: 1 },
      inbound: { mxHosts: ['mx.postern.test'] },
      ips: { hostname: 'mx.postern.test', quarantineDays: 30 },
      rows: { keepDays: 30 },
      links: { dir: join(exportsDir, 'links'), claimsDir: join(exportsDir, 'link-claims'), keepMs: 1 },
      exports: {
        dir: exportsDir,
        hostname: 'mx.postern.test',
        holder: 'test',
        publicUrl: 'https://mail.example.com',
        keepDays: 7,
        formulas: 'quote',
        metadataFields: [],
      },
    },
    {
      store,
      meter,
      ownership,
      clock,
      time: createRunningTime(clock),
      log,
      ids,
      spool,
      growth: { has: () => true, left: () => Infinity },
      resolver,
      cached: resolver,
      sweep: createSweep({ store, outbox, clock }),
      counterRemoval: createCounterRemoval({ store, clock }),
      recorder: createRecorder({ store, lists, outbox, clock, log }),
      notices: senders.notices,
      copies: NO_COPIES,
      others: {},
      adoption: { take: async () => false, revive: async () => false },
      member: { id: () => 'h', epoch: () => 0, isLive: () => true },
      scheduling: createScheduling({ store, spool, copies: NO_COPIES, clock, time: createRunningTime(clock) }),
      domainTests: senders.domainTests,
      keySwitch: senders.keySwitch,
      trackingDomainTests: senders.trackingDomains,
    },
  );
  for (const task of Object.values<Task>(tasks)) await task.run();
}
