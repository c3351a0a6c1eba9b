import { createWorkerPool } from '../base/worker-pool.ts';
import { hasOwnStore, mailNames } from '../config.ts';
import { createResolver } from '../dns/resolver.ts';
import type { Resolver } from '../dns/types.ts';
import { createCounterRemoval } from '../events/counter-removal.ts';
import { createLists } from '../events/lists.ts';
import { createRecorder } from '../events/record.ts';
import { createAcceptance } from '../inbound/accept.ts';
import { createBrake } from '../inbound/brake.ts';
import { createContentRouter } from '../inbound/content-routing.ts';
import { createInspector } from '../inbound/inspection.ts';
import { createOwnership } from '../inbound/ownership.ts';
import { createPacing } from '../inbound/pacing.ts';
import { createPostmaster } from '../inbound/postmaster.ts';
import { createReturnAddresses } from '../inbound/return-addresses.ts';
import { createRouting } from '../inbound/routing.ts';
import type { AcceptingQueue } from '../inbound/types.ts';
import type { Notes } from '../journal/types.ts';
import { createReservedNames } from '../mail/addresses/reserved-names.ts';
import { createDispatcher } from '../queue/dispatcher.ts';
import { createEndpointPauses } from '../queue/endpoint-pauses.ts';
import type { Roads } from '../queue/road.ts';
import { createBacklog } from '../queue/schedule/backlog.ts';
import { createSenderReports } from '../returns/reports.ts';
import { createFeedback } from '../returns/returns.ts';
import { createReturnRoad, type SendOwn } from '../returns/road.ts';
import { createScanners } from '../scan/scanners.ts';
import { createScanning } from '../scan/scanning.ts';
import { createComposer } from '../sending/compose/composer.ts';
import { createCustomDomains } from '../sending/domains/custom-domains.ts';
import { createDomainTests } from '../sending/domains/domain-tests.ts';
import { createKeySwitch } from '../sending/domains/key-rotation.ts';
import { createDomainKeys, newKeyPair } from '../sending/domains/keys.ts';
import { createSenderDomains } from '../sending/domains/sender-domains.ts';
import { createTrackingDomains } from '../sending/domains/tracking-domains.ts';
import { createMailer, createNotices } from '../sending/notices.ts';
import { createOutboundRoad, type OutboundParts } from '../sending/road.ts';
import { createOwnSignature, createSigning, type SignOwn } from '../sending/signing.ts';
import { createMailTransports } from '../sending/transport/mail-transport.ts';
import { createSources } from '../sending/transport/sources.ts';
import type { MailTransport } from '../sending/types.ts';
import type { Settings } from '../settings.ts';
import type { Membership } from '../store/membership.ts';
import { createBatching, createTallies } from '../webhooks/batches.ts';
import { createDestinations } from '../webhooks/destinations.ts';
import { createEventCopies } from '../webhooks/event-copies.ts';
import { createLinkedFiles } from '../webhooks/linked-files.ts';
import { createMessageViews } from '../webhooks/message-views.ts';
import { createOutbox, createSweep } from '../webhooks/outbox.ts';
import { createGuard } from '../webhooks/post/guard.ts';
import { createPoster, createUrlCheck } from '../webhooks/post/post.ts';
import { createPreparation } from '../webhooks/preparation.ts';
import { createPulling } from '../webhooks/pulling.ts';
import { createSteps } from '../webhooks/render/progress.ts';
import { createRenderer, createSample, createSampleMail } from '../webhooks/render/renderer.ts';
import { createReplyMatching } from '../webhooks/reply-matching.ts';
import { createWebhookRoad } from '../webhooks/road.ts';
import { createSigningKeys } from '../webhooks/signing.ts';
import { createTapping } from '../webhooks/tapping.ts';
import { createTrials } from '../webhooks/trials.ts';
import {
  brakeSettings,
  certifiesLinks,
  type DaemonDeps,
  dnsSettings,
  linkSettings,
  ownNames,
  ownSignatureSettings,
  pacingSettings,
  posterSettings,
  rendererSettings,
  renderPoolSettings,
  roadSettings,
  scannerSettings,
  scanningSettings,
  sendingSettings,
  trialSettings,
} from './slices.ts';
import type { Storage } from './storage.ts';

// Creates the parts of the daemon, in groups; daemon.ts defines the order in which they start and stop.

/** Events: their statistics, the lists, and webhooks. */
export function createEvents(
  { webhooks, queue, delivery }: Settings,
  { log, clock, ids }: DaemonDeps,
  { store, spool, tokenSecret, member }: Storage & { readonly member: Membership },
) {
  const eventCopies = createEventCopies(
    { mode: queue.copies, retryHours: delivery.retry_hours },
    { store, spool, member, clock, log },
  );
  const outbox = createOutbox({ store, spool, copies: eventCopies, clock });
  const limits = { events: webhooks.batch_events, bytes: webhooks.batch_bytes };
  const batching = createBatching({ limits, waitMs: webhooks.batch_wait_ms }, { spool, clock, ids, log });
  const tallies = createTallies({ spool, store, clock, log });
  const sweep = createSweep({ store, outbox, clock });
  const lists = createLists({ store, outbox, clock, ids, log });
  const recorder = createRecorder({ store, lists, outbox, clock, log });
  return {
    eventCopies,
    outbox,
    batching,
    tallies,
    sweep,
    lists,
    counterRemoval: createCounterRemoval({ store, clock }),
    recorder,
    ...createFeedback({ store, tokenSecret, recorder, lists, clock, log }),
  };
}

/** The threads that parse messages: those for mail being accepted, and those for mail being posted or sent. */
export function createThreads(settings: Settings, { clock, log, metrics }: DaemonDeps) {
  return createWorkerPool(renderPoolSettings(settings), { clock, log, metrics });
}

type Threads = ReturnType<typeof createThreads>;

interface InboundParts extends Storage {
  readonly fresh: Resolver;
  readonly threads: Threads;
  readonly notes: Notes;
  readonly accepting: AcceptingQueue;
}

/** Inbound mail: routes, return addresses, signing keys, and acceptance onto the queue. */
export function createInbound(settings: Settings, deps: DaemonDeps, parts: InboundParts) {
  const { log, clock, ids, metrics } = deps;
  const { spool, store, time, tokenSecret, fresh, threads, notes, accepting } = parts;
  const { inbound, outbound } = settings;
  const routing = createRouting({ refreshMs: inbound.refresh_ms }, { store, clock, ids, log });
  const names = createReservedNames(ownNames(settings));
  const paces = pacingSettings(settings);
  const backlog = createBacklog(paces.above);
  const pacing = createPacing(paces, { backlog, clock, log, metrics });
  const scanners = createScanners(scannerSettings(settings));
  const scanning =
    scanners.length > 0
      ? createScanning(scanningSettings(settings), { scanners, spool, time, clock, log, metrics })
      : undefined;
  const scanBefore = settings.scan.when === 'before' ? scanning?.beforeAcceptance : undefined;
  const inspector = createInspector({ run: threads.task('judge'), log });
  const brake = createBrake(brakeSettings(settings), { clock, log, metrics });
  const contentRouter = createContentRouter({ inspector, scanNow: async (message) => scanning?.now(message) });
  return {
    backlog,
    pacing,
    scanning,
    names,
    ownership: createOwnership(
      { ownership: inbound.ownership },
      { store, routing, resolver: fresh, names, clock, log },
    ),
    resolver: createResolver(dnsSettings(settings), { clock, log, ids, metrics }),
    routing,
    returnAddresses: createReturnAddresses(
      { returnDomain: outbound.return_domain, refreshMs: inbound.refresh_ms },
      { store, secret: tokenSecret.read, clock, log },
    ),
    postmaster: createPostmaster({ names: mailNames(settings), address: settings.smtp.postmaster }),
    signingKeys: createSigningKeys({ store, clock, ids }),
    acceptance: createAcceptance(
      { hostname: settings.hostname, holdLoops: inbound.loop_hold },
      { spool: accepting, pacing, scanBefore, contentRouter, brake, notes, clock, ids, metrics },
    ),
  };
}

/** Outbound mail: carriers, our own notices, and sender domains. */
export function createOutbound(
  settings: Settings,
  deps: DaemonDeps,
  parts: Pick<Storage, 'store' | 'time'> & { fresh: Resolver; cached: Resolver; loopbackOnly: boolean },
) {
  const { log, clock, ids } = deps;
  const { store, time, fresh, cached, loopbackOnly } = parts;
  const { hostname, public_url: publicUrl, mail, senders, outbound } = settings;
  const transports = createMailTransports(
    {
      hostname,
      own: { relay: mail.relay, mxPort: mail.mx_port },
      accounts: { relay: outbound.relay, mxPort: outbound.mx_port },
      mtaSts: outbound.mta_sts,
      tls: outbound.tls,
      timeoutMs: outbound.timeout_s * 1000,
      hostTimeoutMs: outbound.host_timeout_s * 1000,
      allowPrivate: outbound.allow_private,
      loopbackOnly,
    },
    { resolver: cached, clock, ids, log },
  );
  const domainKeys = createDomainKeys({ store, clock, newKeyPair });
  const signOwn = createOwnSignature(ownSignatureSettings(settings), { domainKeys });
  const mailer = createMailer({ hostname, from: mail.from }, { carrier: transports.own, signOwn });
  const notices = createNotices({ from: mail.from, store, mailer, clock, time, ids, log });
  const sender = { hostname, publicUrl, spfInclude: senders.spf_include, dkimSelector: senders.dkim_selector };
  const mxHosts = [hostname, ...settings.inbound.mx_hosts];
  const customDomains = createCustomDomains(
    { publicUrl, returnDomain: outbound.return_domain, mxHosts, certifies: certifiesLinks(settings, deps) },
    { store, resolver: cached, clock },
  );
  const keySwitch = (resolver: Resolver) => createKeySwitch(sender, { store, resolver, clock, log });
  const tests = (resolver: Resolver) =>
    createDomainTests(sender, { store, resolver, keys: domainKeys, keySwitch: keySwitch(resolver), clock });
  const freshTests = tests(fresh);
  const trackers = (resolver: Resolver) => createTrackingDomains({ publicUrl }, { store, resolver, clock });
  return {
    notices,
    signOwn,
    domainKeys,
    customDomains,
    trackingDomains: trackers(fresh),
    trackingDomainTests: trackers(cached),
    mailCarrier: transports.accounts,
    ownCarrier: transports.own,
    sources: createSources({ store, clock }),
    domainTests: tests(cached),
    signing: createSigning(sendingSettings(settings), { store, keys: domainKeys, freshTests, clock, log }),
    keySwitch: keySwitch(cached),
    senderDomains: createSenderDomains(sender, {
      store,
      tests: freshTests,
      keys: domainKeys,
      resolver: fresh,
      notices,
      clock,
      ids,
    }),
  };
}

type Events = ReturnType<typeof createEvents>;
type Inbound = ReturnType<typeof createInbound>;

interface DeliveryParts extends Storage, Events, Inbound {
  readonly notes: Notes;
  readonly mail: OutboundParts;
  /** Carries our own mail. */
  readonly ownCarrier: MailTransport;
  readonly signOwn: SignOwn;
  readonly loopbackOnly: boolean;
  readonly threads: Threads;
}

/** Delivery of everything on the queue. */
export function createDelivery(settings: Settings, deps: DaemonDeps, parts: DeliveryParts) {
  const { clock, ids, log, metrics } = deps;
  const tools = { clock, ids, log, metrics };
  const { store, spool, time, routing, resolver, recorder, scanning, threads, loopbackOnly } = parts;
  const { hostname } = settings;
  const guard = createGuard({ allowPrivate: settings.webhooks.allow_private, loopbackOnly }, { resolver });
  const poster = createPoster(posterSettings(settings), { guard, clock });
  const trialPoster = createPoster(trialSettings(settings), { guard, clock });
  const composer = createComposer(threads.task('compose'));
  const { tokenSecret, growth } = parts;
  const linkedFiles = createLinkedFiles(linkSettings(settings), { tokenSecret, growth, clock, log });
  const renderer = createRenderer(rendererSettings(settings), {
    run: threads.task('render'),
    links: linkedFiles.reserve,
    log,
  });
  const steps = createSteps((ms) => threads.each('steps', ms));
  const limits = roadSettings(settings);
  const { signOwn, notes, signingKeys } = parts;
  const senderReports = createSenderReports({ hostname, from: settings.mail.from }, { spool, signOwn, clock, log });
  const destinations = createDestinations({ store, routing, clock });
  const answers = createReplyMatching({ store, recorder });
  const preparing = { renderer, destinations, signingKeys, senderReports, answers, scanning, notes, ...tools };
  const webhooks = createWebhookRoad(limits.webhooks, { ...preparing, spool, steps, poster, time });
  const sendOwn = sendOver(parts.ownCarrier);
  const roads: Roads = {
    inbound: webhooks,
    events: webhooks,
    outbound: createOutboundRoad(limits.outbound, { ...parts.mail, spool, composer, senderReports, time, ...tools }),
    return: createReturnRoad(limits.returns, { spool, returns: parts.returns, sendOwn, time, clock, ids, log }),
  };
  const dispatcher = createDispatcher({ spool, roads, backlog: parts.backlog, time, ...tools });
  const sampleMail = createSampleMail({ clock, hostname });
  const preparation = createPreparation({ ...preparing, spool });
  return {
    pulling: createPulling(limits.webhooks, { spool, preparation, destinations, dispatcher, time, ...tools }),
    tapping: createTapping({ spool, preparation, scanning, clock }),
    poster,
    dispatcher,
    pauses: createEndpointPauses({ alone: hasOwnStore(settings) }, { store, dispatcher, clock, log }),
    linkedFiles,
    urlFault: createUrlCheck({ poster, guard, log }),
    sample: createSample({ renderer, sampleMail }),
    sampleMail,
    trialPoster,
    trials: createTrials({ renderer, poster: trialPoster, destinations, answers, clock, ids }),
    views: createMessageViews({
      renderer,
      run: threads.task('content'),
      show: threads.task('shown'),
      destinations,
      answers,
      log,
    }),
  };
}

/** Sends our own mail unchanged, with an empty envelope sender. */
function sendOver(carrier: MailTransport): SendOwn {
  return ({ bytes, recipient }) =>
    carrier.send({ composed: { bytes, mailFrom: '', links: [] }, recipient, sourceAddresses: [] });
}
