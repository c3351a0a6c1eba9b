import { frozen } from '../../base/frozen.ts';
import type { Role } from '../../store/rows/people.ts';

/**
 * What an operation shows or does: `numbers` and states · `mail`: searching, envelopes, refusals, replaying · `content` of
 * mail · `settings`: everything else of an account · `secrets`: keys of an account, made, shown or changed · `host`: what
 * concerns all accounts · `people`: who may come in.
 */
type Kind = (typeof KINDS)[number];

const KINDS = ['numbers', 'mail', 'content', 'settings', 'secrets', 'host', 'people'] as const;

/** What somebody who finds an open page must not do: the visitor proves who they are, if that was a while ago. */
const NEEDS_PROOF: readonly Kind[] = ['secrets', 'people'];

const MAY: Readonly<Record<Role, readonly Kind[]>> = {
  reader: ['numbers'],
  helper: ['numbers', 'mail'],
  owner: ['numbers', 'mail', 'content', 'settings', 'secrets'],
  operator: ['numbers', 'mail', 'settings', 'secrets', 'host', 'people'],
};

/** What a role may call. Operators see content only if the setting says so; `isLook` tells what is then noted. */
export interface Permissions {
  may(role: Role, path: string): boolean;
  /** Whether a call shows the content of mail. */
  isLook(path: string): boolean;
  /** Whether a call needs a password, or a link, that was used a short while ago. */
  needsProof(path: string): boolean;
}

export function createPermissions(settings: { readonly operatorReadsMail: boolean }): Permissions {
  return frozen({
    may(role, path) {
      const kind = kindOf(path);
      return MAY[role].includes(kind) || (kind === 'content' && role === 'operator' && settings.operatorReadsMail);
    },
    isLook: (path) => kindOf(path) === 'content',
    needsProof: (path) => NEEDS_PROOF.includes(kindOf(path)),
  });
}

/** An operation that is not listed counts as content, so that a new one is open to the fewest until somebody decides. */
function kindOf(path: string): Kind {
  const [, group = '', name = ''] = path.split('/');
  for (const kind of KINDS) if (LISTED[kind][group]?.includes(name)) return kind;
  return 'content';
}

/** The names of the operations of each group. */
const LISTED: Readonly<Record<Kind, Readonly<Record<string, readonly string[]>>>> = {
  numbers: {
    users: ['info', 'ping', 'ping2', 'senders'],
    inbound: ['domains'],
    senders: ['list', 'domains', 'info', 'time-series'],
    tags: ['list', 'info', 'time-series', 'all-time-series'],
    urls: ['list', 'search', 'time-series'],
    endpoints: ['list', 'info'],
  },
  mail: {
    inbound: ['search', 'causes', 'info', 'refusals', 'deliveries', 'replay', 'retry'],
    messages: ['search', 'search-time-series', 'info', 'list-scheduled'],
    rejects: ['list'],
    whitelists: ['list'],
    allowlists: ['list'],
    actions: ['list'],
    jobs: ['info'],
  },
  content: {
    inbound: ['ack', 'content', 'nack', 'payload', 'pull', 'tap', 'try'],
    messages: ['content'],
  },
  settings: {
    endpoints: ['pause', 'resume', 'retry'],
    exports: ['activity', 'allowlist', 'info', 'list', 'rejects', 'whitelist'],
    inbound: [
      'add-domain',
      'add-route',
      'check-domain',
      'delete-domain',
      'delete-route',
      'domain-servers',
      'drop',
      'reply-address',
      'routes',
      'send-raw',
      'test-route',
      'try-route',
      'update-route',
    ],
    ips: [
      'cancel-provision',
      'cancel-warmup',
      'check-custom-dns',
      'create-pool',
      'delete',
      'delete-pool',
      'info',
      'list',
      'list-pools',
      'pool-info',
      'provision',
      'set-custom-dns',
      'set-pool',
      'start-warmup',
    ],
    keys: ['list'],
    messages: [
      'cancel-scheduled',
      'parse',
      'resend',
      'reschedule',
      'retry',
      'send',
      'send-raw',
      'send-template',
      'stop',
    ],
    metadata: ['add', 'delete', 'list', 'update'],
    rejects: ['add', 'delete'],
    senders: ['add-domain', 'check-domain', 'delete-domain', 'verify-domain'],
    subaccounts: ['add', 'delete', 'info', 'list', 'pause', 'resume', 'update'],
    tags: ['delete'],
    templates: ['add', 'delete', 'info', 'list', 'publish', 'render', 'time-series', 'update'],
    urls: ['add-tracking-domain', 'check-tracking-domain', 'delete-tracking-domain', 'tracking-domains'],
    webhooks: ['delete', 'deliveries', 'test'],
    whitelists: ['add', 'delete'],
    allowlists: ['add', 'delete'],
  },
  secrets: {
    inbound: ['rotate-reply-key', 'route-key'],
    keys: ['add', 'revoke'],
    senders: ['domain-key'],
    // Their records have the key that signs.
    webhooks: ['add', 'info', 'key', 'list', 'update'],
  },
  host: {
    host: [
      'accounts',
      'actions',
      'drop',
      'examine',
      'job',
      'lanes',
      'listeners',
      'log',
      'making',
      'overview',
      'pause',
      'people',
      'poke',
      'queue',
      'resume',
      'retry',
      'series',
      'sessions',
      'settings',
      'tasks',
    ],
  },
  people: {
    host: ['add-person', 'end-session', 'invite-person', 'remove-person', 'reset-factor'],
  },
};

/** Whether somebody has decided who may call it. */
export function isDecided(path: string): boolean {
  const [, group = '', name = ''] = path.split('/');
  return KINDS.some((kind) => LISTED[kind][group]?.includes(name));
}
