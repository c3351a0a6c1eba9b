import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Resolver } from '../dns/types.ts';
import type { EventRecorder } from '../events/record.ts';
import type { Numbers } from '../events/types.ts';
import type { Ownership } from '../inbound/ownership.ts';
import type { DomainTests } from '../outbound/domain-tests.ts';
import type { KeySwitch } from '../outbound/key-rotation.ts';
import type { Scheduling } from '../outbound/scheduling.ts';
import type { Notices } from '../outbound/types.ts';
import type { Spool } from '../spool/types.ts';
import type { Store } from '../store/store.ts';
import type { UsageMeter } from '../store/usage.ts';
import { applyEventsTask } from './apply-events.ts';
import { countUsageTask } from './count-usage.ts';
import { expireRejectsTask } from './expire-rejects.ts';
import { expireExportsTask } from './exports/expire-exports.ts';
import { type ExportSettings, runExportsTask } from './exports/run-exports.ts';
import { finishWarmupsTask } from './finish-warmups.ts';
import { keepTimeTask } from './keep-time.ts';
import { type ProvisioningDeps, type ProvisioningSettings, provisionIpsTask } from './provision-ips.ts';
import { type PurgeSettings, purgeTask } from './purge.ts';
import { type PurgeRowsSettings, purgeRowsTask } from './purge-rows.ts';
import { type RetestInboundSettings, retestInboundDomainsTask } from './retest-inbound-domains.ts';
import { type ReverseDnsDeps, retestReverseDnsTask } from './retest-reverse-dns.ts';
import { retestSenderDomainsTask } from './retest-sender-domains.ts';
import { type RetestTrackingDeps, retestTrackingDomainsTask } from './retest-tracking-domains.ts';
import { sendNoticesTask } from './send-notices.ts';
import { sweepOutboxTask } from './sweep-outbox.ts';
import type { Task } from './task.ts';
import { tendBatchesTask } from './tend-batches.ts';
import { tendScheduledTask } from './tend-scheduled.ts';

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
