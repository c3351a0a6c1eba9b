import { type Api, createApi } from './api/http/server.ts';
import { systemClock } from './base/clock.ts';
import { frozen } from './base/frozen.ts';
import type { Log } from './base/log.ts';
import type { HostPort } from './base/networks.ts';
import { createRecentLog } from './base/recent-log.ts';
import { createHealth, listenerViews, registerBuildInfo, withCounts } from './composition/health.ts';
import { listenerSettings, sessionThreads, submissionSettings } from './composition/listeners.ts';
import { openOwnTls } from './composition/own-tls.ts';
import { createDelivery, createEvents, createInbound, createOutbound, createThreads } from './composition/parts.ts';
import {
  apiSettings,
  consoleSettings,
  copyingSettings,
  type DaemonDeps,
  dnsSettings,
  hostSettings,
  journalSettings,
  lostHostsSettings,
  membershipSettings,
  nameServerSettings,
  onLoopbackOnly,
  ownDomainsSettings,
  sendingSettings,
  signInUrl,
  spoolDir,
  taskSchedules,
  taskSettings,
  transportPolicySettings,
} from './composition/slices.ts';
import { openStorage } from './composition/storage.ts';
import { hasOwnStore, type LoadedSettings } from './config.ts';
import { createConsole } from './console/console.ts';
import { hostAnswers } from './console/host/index.ts';
import { createHostParts, type HostDeps } from './console/host/parts.ts';
import { createNameServers } from './dns/name-servers.ts';
import { createResolver } from './dns/resolver.ts';
import { createCopying } from './inbound/copies/copying.ts';
import { createMtaStsPolicies } from './inbound/mta-sts.ts';
import { createCommandNotes } from './journal/command-access.ts';
import { createJournal } from './journal/journal.ts';
import { watchQueue } from './journal/queue-watch.ts';
import { createSeries } from './journal/series.ts';
import { folderOf, hostIdIn } from './queue/disk/folder.ts';
import { createAdoption } from './sending/adoption.ts';
import { createCopies } from './sending/copies.ts';
import { createOwnDomains } from './sending/domains/own-domains.ts';
import { createScheduling } from './sending/scheduling.ts';
import { createSending } from './sending/sending.ts';
import { createReleasing, createSendingQuota } from './sending/sending-quota.ts';
import { createSubmitting } from './sending/submit.ts';
import type { Settings } from './settings.ts';
import { adviceOf, REFUSAL_REASONS } from './smtp/advice.ts';
import { createListener } from './smtp/listener.ts';
import { createSubmission } from './smtp/submission/submission.ts';
import { StoreAway } from './store/driver/port.ts';
import { createLostHosts } from './store/lost-hosts.ts';
import { createMembership } from './store/membership.ts';
import { bootstrap } from './store/rows/accounts.ts';
import type { HostRefused } from './store/rows/hosts.ts';
import { createSignInLink } from './store/rows/people.ts';
import { createTasks } from './tasks/index.ts';
import { createLeases } from './tasks/lease.ts';
import { createScheduler } from './tasks/scheduler.ts';

/** The key of the first account, returned only by the start that created it. */
interface FirstKey {
  readonly account: string;
  readonly key: string;
}

export interface Daemon {
  /** Resolves when mail and API calls are accepted. */
  start(): Promise<{
    readonly smtp: readonly HostPort[];
    readonly submission: readonly HostPort[];
    readonly http: HostPort;
    readonly firstKey: FirstKey | undefined;
  }>;
  /** Creates a one-time sign-in link for the console; undefined if it is off, or the store is away. */
  enterLink(): Promise<string | undefined>;
  /** Applies what can change while running: certificates. Throws if they are unusable; the old ones stay. */
  reload(loaded: LoadedSettings): Promise<void>;
  /** Runs an API operation for an account without a key, before or after `start`; see `Api.run`. */
  run: Api['run'];
  /** Throws unless the event loop runs, the spool syncs and the listeners listen. */
  check(): Promise<void>;
  /** Resolves if this process must stop, because it may not run beside another host of its store. */
  readonly refused: Promise<HostRefused>;
  /** Stops accepting mail, finishes messages in DATA and deliveries in flight, closes everything. */
  stop(): Promise<void>;
}

/** Creates every part, and defines the order in which they start and stop. Nothing runs before `start`. */
export async function openDaemon(settings: Settings, given: DaemonDeps): Promise<Daemon> {
  const recentLog = createRecentLog(given.clock);
  const deps = { ...given, log: withCounts(given, recentLog) };
  const { log, clock, ids, metrics } = deps;
  registerBuildInfo(settings, metrics);

  // The base: queue, store, DNS.
  const opened = await openStorage(settings, deps);
  const journal = createJournal(journalSettings(settings), { ...deps, deadlines: systemClock });
  const series = createSeries({ figures: metrics, notes: journal, ask: journal.ask, clock, log });
  const watched = watchQueue(opened.spool, { journal, clock, log });
  const { store, time } = opened;
  // The row of this host. Visitors have none.
  const membership = createMembership(membershipSettings(settings, deps), {
    store,
    identify: () => hostIdIn(folderOf(spoolDir(settings)), ids.key),
    incarnation: ids.key(),
    clock,
    log,
  });
  const lostHosts = createLostHosts(lostHostsSettings(settings), { ...deps, store, member: membership });
  const copying = createCopying(copyingSettings(settings), {
    ...deps,
    store,
    spool: watched.spool,
    member: membership,
  });
  const storage = { ...opened, spool: copying.spool };
  const { spool } = storage;
  // Without a cache, because a domain is usually checked right after a change.
  const fresh = createResolver(dnsSettings(settings), { clock, log, ids, metrics, cacheEntries: 0 });
  const loopbackOnly = onLoopbackOnly(settings, deps);
  const nameServers = createNameServers(nameServerSettings(settings, loopbackOnly), {
    resolver: fresh,
    clock,
    ids,
    log,
  });

  // Inbound mail, outbound mail, events, and delivery from the queue.
  const threads = createThreads(settings, deps);
  const { accepting } = copying;
  const inbound = createInbound(settings, deps, { ...storage, accepting, fresh, threads, notes: journal });
  const outbound = createOutbound(settings, deps, { store, time, loopbackOnly, fresh, cached: inbound.resolver });
  const events = createEvents(settings, deps, { ...storage, member: membership });
  const sendingQuota = createSendingQuota({ quota: settings.outbound.quota }, { store, ids, time });
  const releasing = createReleasing({ spool, holding: sendingQuota, clock, log });
  const copies = createCopies({ mode: settings.queue.copies }, { store, member: membership, clock, log });
  const others = { events: events.eventCopies };
  const adoption = createAdoption(
    { alone: hasOwnStore(settings) },
    { store, spool: watched.spool, copies, others, member: membership, clock, ids, log },
  );
  const scheduling = createScheduling({ ...storage, copies, clock });
  const ownDomains = createOwnDomains(ownDomainsSettings(settings), { store });
  const submitting = createSubmitting(
    { hostname: settings.hostname, returnDomain: settings.outbound.return_domain },
    {
      ...storage,
      ...events,
      copies,
      sendingQuota,
      ownDomains,
      signing: outbound.signing,
      clock,
      ids,
      log,
      metrics,
    },
  );
  const sending = createSending(sendingSettings(settings), {
    ...storage,
    ...outbound,
    ...events,
    ownDomains,
    sendingQuota,
    scheduling,
    copies,
    clock,
    log,
  });
  const delivery = createDelivery(settings, deps, {
    ...storage,
    notes: journal,
    threads,
    loopbackOnly,
    ...inbound,
    ...events,
    mail: sending.mail,
    ownCarrier: outbound.ownCarrier,
    signOwn: outbound.signOwn,
  });

  // Scheduled tasks. `holder` identifies this run of the process in task leases and job claims.
  const holder = `${settings.hostname} ${ids.key()}`;
  const tasks = createTasks(taskSettings(settings, holder), {
    ...storage,
    ...events,
    ...outbound,
    ownership: inbound.ownership,
    scheduling,
    adoption,
    copies,
    others,
    member: membership,
    ids,
    log,
    clock,
    resolver: fresh,
    cached: inbound.resolver,
  });
  const leases = createLeases({ holder }, { store, clock });
  const scheduler = createScheduler(tasks, taskSchedules(settings), { leases, clock, log, metrics });

  // Public interfaces: SMTP for inbound mail, SMTP for submission, HTTP.
  const ownTls = await openOwnTls(settings, deps, { store, resolver: fresh });
  const tls = ownTls.pem();
  const listener = createListener(listenerSettings(settings, deps, tls), {
    ...inbound,
    spool,
    threads: sessionThreads(settings),
    notes: journal,
    clock,
    ids,
    log,
    metrics,
  });
  const submission = createSubmission(submissionSettings(settings, deps, { loopbackOnly, tls }), {
    ...storage,
    submitting,
    notes: journal,
    clock,
    ids,
    log,
    metrics,
  });
  let shown = deps.shown;
  const health = createHealth({ listener, submission, spool, store, routing: inbound.routing });

  // The API and the console. The console comes first, because it is attached to the API's server.
  const shared = {
    ...storage,
    ...delivery,
    ...deps,
    poke: scheduler.poke,
    history: journal.history,
    notes: deps.role === 'visitor' ? createCommandNotes(journalSettings(settings).file, log) : journal,
    refusals: { reasons: REFUSAL_REASONS, adviceOf },
    health,
  };
  const forOperators: HostDeps = {
    ...shared,
    member: membership,
    host: {
      series,
      tasks: scheduler.tasks,
      settings: () => shown,
      log: recentLog,
      signInUrl: (token) => signInUrl(settings, token),
      listeners: () => listenerViews({ listener, submission, api, metrics, certificates: ownTls }),
      // Loaded on demand: it checks signatures, a sixth of all code that the daemon would load.
      async *examine() {
        const { examine } = await import('./examination/examine.ts');
        yield* examine({
          world: {
            settings: { ...settings, smtp: { ...settings.smtp, tls: ownTls.files() } },
            resolver: fresh,
            store,
            noStore: '',
            queue: spool,
            noQueue: '',
            listeners: { smtp: addressesOf(listener), submission: addressesOf(submission), http: api.address() },
            clock,
            settingsFile: settingsFileOf(shown),
            reach: undefined,
            root: '/',
          },
        });
      },
    },
  };
  const hostParts = createHostParts(hostSettings(settings), forOperators);
  const openConsole = consoleSettings(settings, deps);
  const api = createApi(apiSettings(settings, deps), {
    ...shared,
    ...inbound,
    ...outbound,
    ...events,
    submitting,
    scheduling,
    releasing,
    resolver: fresh,
    nameServers,
    certificates: ownTls,
    policyAt: createMtaStsPolicies(transportPolicySettings(settings), inbound).at,
    instance: ids.key(),
    member: membership,
    hostAnswers: hostAnswers(hostParts),
    attached:
      openConsole &&
      createConsole(openConsole, {
        ...shared,
        ...forOperators,
        hostParts,
        feed: journal.feed,
        smtpAddresses: listener.addresses,
      }),
  });

  return frozen({
    async start() {
      // Parts that the listeners need start before them, the others after them.
      await membership.start();
      await journal.start();
      await inbound.routing.start();
      await inbound.ownership.warn();
      // Without the store, `postern account create` makes the first account later.
      const firstKey = await unlessAway(() => bootstrap(store, settings.bootstrap.api_key, { clock, ids }));
      await inbound.returnAddresses.start();
      await copying.start();
      await delivery.dispatcher.start(await delivery.pauses.known());
      await delivery.pauses.start();
      delivery.pulling.start();
      await sending.reporter.start();
      await adoption.start();
      await lostHosts.start();
      await events.batching.start();
      await events.tallies.start();
      await events.eventCopies.start();
      await api.start();
      await listener.start();
      await submission.start();
      ownTls.start([listener, submission]);
      await scheduler.start();
      watched.start();
      await series.start();
      if (loopbackOnly) noteLoopback(settings, log);
      return { smtp: addressesOf(listener), submission: addressesOf(submission), http: api.address(), firstKey };
    },
    async enterLink() {
      if (!openConsole) return undefined;
      const token = await unlessAway(() => createSignInLink(store, null, { clock, ids }));
      return token && signInUrl(settings, token);
    },
    async reload(next) {
      await ownTls.reload(next.settings);
      // The others apply after a restart.
      const certificates = next.shown.filter(({ path }) => path.startsWith('smtp.tls.'));
      shown = shown.map((one) => certificates.find(({ path }) => path === one.path) ?? one);
    },
    run: api.run,
    refused: membership.refused,
    check: health.check,
    async stop() {
      // Each step stops parts that use those of later steps: first intake, then delivery, and the files last.
      inbound.pacing.stop();
      hostParts.examinations.stop();
      copies.stop();
      copying.stopHolding();
      await Promise.all([ownTls.stop(), listener.stop(), submission.stop()]);
      await Promise.all([
        api.stop(),
        adoption.stop(),
        lostHosts.stop(),
        copying.stop(),
        scheduler.stop(),
        delivery.pauses.stop(),
        delivery.dispatcher.stop(),
        events.batching.stop(),
        outbound.notices.stop(),
      ]);
      await Promise.all([
        threads.stop(),
        delivery.poster.stop(),
        delivery.trialPoster.stop(),
        outbound.mailCarrier.stop(),
        inbound.scanning?.stop(),
        inbound.routing.stop(),
        inbound.resolver.stop(),
        fresh.stop(),
      ]);
      await Promise.all([
        sending.reporter.stop(),
        events.tallies.stop(),
        events.eventCopies.stop(),
        events.trackedEvents.stop(),
        inbound.returnAddresses.stop(),
        storage.keyUses.stop(),
      ]);
      await series.stop();
      await Promise.all([watched.stop(), journal.stop(), membership.stop()]);
      await Promise.all([spool.close(), store.close()]);
    },
  });
}

const addressesOf = ({ addresses }: { addresses(): readonly { readonly address: string; readonly port: number }[] }) =>
  addresses().map(({ address, port }) => ({ host: address, port }));

/** The settings file; undefined if none of the settings is from one. */
function settingsFileOf(shown: DaemonDeps['shown']): string | undefined {
  return shown.find(({ origin }) => origin !== 'default' && !origin.startsWith('POSTERN_'))?.origin;
}

/** Logs the protections that are off because the daemon is only on loopback. */
function noteLoopback({ webhooks, outbound }: Settings, log: Log): void {
  if (webhooks.allow_private === null) {
    log.info('daemon.note', {
      note: 'every listener is on loopback, so webhooks may post to loopback too (webhooks.allow_private)',
    });
  }
  if (outbound.allow_private === null) {
    log.info('daemon.note', {
      note: 'every listener is on loopback, so mail may be sent to loopback too (outbound.allow_private)',
    });
  }
}

/** Undefined if the store is away, so that the start continues. */
async function unlessAway<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof StoreAway) return undefined;
    throw error;
  }
}
