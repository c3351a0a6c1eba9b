import type { DiskSpace } from '../base/disk-space.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Task } from '../base/service.ts';
import type { Tools } from '../base/tools.ts';
import type { Resolver } from '../dns/types.ts';
import type { CounterRemoval } from '../events/counter-removal.ts';
import { expireRejectsTask } from '../events/lists.ts';
import { applyEventsTask, type EventRecorder, type PurgeRowsSettings, purgeRowsTask } from '../events/record.ts';
import { type Ownership, type RetestInboundSettings, retestInboundDomainsTask } from '../inbound/ownership.ts';
import type { Spool } from '../queue/delivery.ts';
import { keepTimeTask, type PurgeSettings, purgeTask } from '../queue/purge.ts';
import { type TendCopiesDeps, tendCopiesTask } from '../sending/adoption.ts';
import {
  finishWarmupsTask,
  type ProvisioningSettings,
  provisionIpsTask,
  retestReverseDnsTask,
} from '../sending/dedicated-ips.ts';
import { type DomainTests, retestSenderDomainsTask } from '../sending/domains/domain-tests.ts';
import type { KeySwitch } from '../sending/domains/key-rotation.ts';
import { type RetestTrackingDeps, retestTrackingDomainsTask } from '../sending/domains/tracking-domains.ts';
import type { Notices } from '../sending/notices.ts';
import { sendNoticesTask } from '../sending/notices.ts';
import { type Scheduling, tendScheduledTask } from '../sending/scheduling.ts';
import type { Store } from '../store/store.ts';
import { countUsageTask, type UsageMeter } from '../store/usage.ts';
import { tendBatchesTask } from '../webhooks/batches.ts';
import { type ExpireLinksSettings, expireLinksTask } from '../webhooks/linked-files.ts';
import { sweepOutboxTask } from '../webhooks/outbox.ts';
import { expireExportsTask } from './exports/folder.ts';
import { type ExportSettings, runExportsTask } from './exports/run-exports.ts';

/**
 * Every task of the daemon, by its name in logs, metrics and leases. Each is implemented in the folder of its subject;
 * its schedule comes from the settings.
 */
export function createTasks(settings: TaskSettings, deps: TaskDeps) {
  return {
    purge: purgeTask(settings.purge, deps),
    'keep-time': keepTimeTask(deps),
    'sweep-outbox': sweepOutboxTask(deps),
    'tend-batches': tendBatchesTask(settings.batches, deps),
    'tend-scheduled': tendScheduledTask(deps),
    'tend-copies': tendCopiesTask(deps),
    'run-exports': runExportsTask(settings.exports, { ...deps, hasRoom: deps.growth.has, left: deps.growth.left }),
    'expire-exports': expireExportsTask(settings.exports, deps),
    'expire-links': expireLinksTask(settings.links, deps),
    'purge-rows': purgeRowsTask(settings.rows, deps),
    'apply-events': applyEventsTask(deps),
    'count-usage': countUsageTask(deps),
    'expire-rejects': expireRejectsTask(deps),
    'provision-ips': provisionIpsTask(settings.ips, deps),
    'finish-warmups': finishWarmupsTask(deps),
    'retest-reverse-dns': retestReverseDnsTask(settings.ips, deps),
    'send-notices': sendNoticesTask(deps),
    'retest-sender-domains': retestSenderDomainsTask(deps),
    'retest-tracking-domains': retestTrackingDomainsTask(deps),
    'retest-inbound-domains': retestInboundDomainsTask(settings.inbound, { ...deps, resolver: deps.cached }),
  } satisfies Record<string, Task>;
}

interface TaskSettings {
  readonly purge: PurgeSettings;
  readonly batches: { readonly retryHours: number };
  readonly ips: ProvisioningSettings;
  readonly inbound: RetestInboundSettings;
  readonly exports: ExportSettings;
  readonly links: ExpireLinksSettings;
  readonly rows: PurgeRowsSettings;
}

interface TaskDeps extends Pick<Tools, 'clock' | 'ids' | 'log'>, TendCopiesDeps, RetestTrackingDeps {
  readonly sweep: () => Promise<number>;
  readonly recorder: EventRecorder;
  readonly counterRemoval: CounterRemoval;
  readonly spool: Spool;
  /** The room for what accounts store. */
  readonly growth: Pick<DiskSpace, 'has' | 'left'>;
  readonly store: Store;
  readonly meter: UsageMeter;
  readonly time: RunningTime;
  readonly notices: Notices;
  readonly scheduling: Scheduling;
  readonly domainTests: DomainTests;
  readonly ownership: Ownership;
  readonly keySwitch: KeySwitch;
  /** Answers from its cache if it can. */
  readonly cached: Resolver;
  /** Bypasses the cache. */
  readonly resolver: Resolver;
}
