import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Task } from '../base/service.ts';
import type { Resolver } from '../dns/types.ts';
import { expireRejectsTask, type PurgeRowsSettings, purgeRowsTask } from '../events/expiry.ts';
import { applyEventsTask, type EventRecorder } from '../events/record.ts';
import type { Numbers } from '../events/types.ts';
import { type Ownership, type RetestInboundSettings, retestInboundDomainsTask } from '../inbound/ownership.ts';
import type { Spool } from '../queue/delivery.ts';
import { keepTimeTask, type PurgeSettings, purgeTask } from '../queue/purge.ts';
import {
  finishWarmupsTask,
  type ProvisioningDeps,
  type ProvisioningSettings,
  provisionIpsTask,
  type ReverseDnsDeps,
  retestReverseDnsTask,
} from '../sending/dedicated-ips.ts';
import { type RetestTrackingDeps, retestTrackingDomainsTask } from '../sending/domains/custom-domains.ts';
import { type DomainTests, retestSenderDomainsTask } from '../sending/domains/domain-tests.ts';
import type { KeySwitch } from '../sending/domains/keys.ts';
import { sendNoticesTask } from '../sending/notices.ts';
import { type Scheduling, tendScheduledTask } from '../sending/scheduling.ts';
import type { Notices } from '../sending/types.ts';
import type { Store } from '../store/store.ts';
import { countUsageTask, type UsageMeter } from '../store/usage.ts';
import { tendBatchesTask } from '../webhooks/batches.ts';
import { sweepOutboxTask } from '../webhooks/outbox.ts';
import { expireExportsTask } from './exports/folder.ts';
import { type ExportSettings, runExportsTask } from './exports/run-exports.ts';

/** Every task of the daemon. */
export function createTasks(
  settings: {
    readonly purge: PurgeSettings;
    readonly batches: { readonly retryHours: number };
    readonly ips: ProvisioningSettings;
    readonly inbound: RetestInboundSettings;
    readonly exports: ExportSettings;
    readonly rows: PurgeRowsSettings;
  },
  deps: {
    sweep: () => Promise<number>;
    ids: Ids;
    log: Log;
    recorder: EventRecorder;
    numbers: Numbers;
    spool: Spool;
    store: Store;
    meter: UsageMeter;
    clock: Clock;
    time: RunningTime;
    notices: Notices;
    scheduling: Scheduling;
    domainTests: DomainTests;
    ownership: Ownership;
    keySwitch: KeySwitch;
    trackingDomainTests: RetestTrackingDeps['trackingDomainTests'];
    cached: Resolver;
    resolver: Resolver;
  },
): readonly Task[] {
  const exportDeps = { ...deps, hasRoom: () => deps.spool.hasRoom() };
  return [
    purgeTask(settings.purge, deps),
    keepTimeTask(deps),
    sweepOutboxTask(deps),
    tendBatchesTask(settings.batches, deps),
    tendScheduledTask(deps),
    runExportsTask(settings.exports, exportDeps),
    expireExportsTask(settings.exports, deps),
    purgeRowsTask(settings.rows, deps),
    applyEventsTask(deps),
    countUsageTask(deps),
    expireRejectsTask(deps),
    ...ipTasks(settings.ips, deps),
    sendNoticesTask(deps),
    retestSenderDomainsTask(deps),
    retestTrackingDomainsTask(deps),
    retestInboundDomainsTask(settings.inbound, { ...deps, resolver: deps.cached }),
  ];
}

function ipTasks(settings: ProvisioningSettings, deps: ProvisioningDeps & ReverseDnsDeps): readonly Task[] {
  return [provisionIpsTask(settings, deps), finishWarmupsTask(deps), retestReverseDnsTask(settings, deps)];
}
