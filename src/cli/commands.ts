import { inWords } from '../base/tables.ts';
import { ASKED_STATES, OPEN_STATES } from '../queue/states.ts';
import type { ListedCommand } from './command.ts';

/** Every command, in the order of the overview. */
export const commands: readonly ListedCommand[] = [
  {
    name: 'setup',
    summary:
      'Makes this machine a mail host: asks three questions, looks at the machine, writes the settings, starts the ' +
      'service, adds an account, a key and a domain, and prints the DNS records to publish.',
    load: async () => (await import('./setup.ts')).setup,
  },
  {
    name: 'serve',
    summary:
      'Runs the daemon: accepts mail by SMTP and API calls by HTTP until SIGTERM. Under a service manager, ' +
      'SIGHUP reloads settings and certificates.',
    load: async () => (await import('./serve.ts')).serve,
  },
  {
    name: 'demo',
    summary:
      'Shows the main path: a real message comes in by SMTP and goes out as a signed webhook POST. Needs no ' +
      'setup and leaves nothing behind.',
    load: async () => (await import('./demo.ts')).demo,
  },
  {
    name: 'config check',
    summary:
      'Checks all settings and the files they name, and prints every fault with its path; exits 78 if there is ' +
      'any. Placeholder names of the example file count as faults.',
    load: async () => (await import('./config.ts')).configCheck,
  },
  {
    name: 'config show',
    summary: 'Prints every effective setting and its origin. Secrets are shown as (set).',
    load: async () => (await import('./config.ts')).configShow,
  },
  {
    name: 'doctor',
    summary: 'Checks everything that a mail host needs, and explains how to fix problems. Exits 1 if it finds a fault.',
    load: async () => (await import('./doctor.ts')).doctor,
  },
  {
    name: 'dns',
    summary:
      'Lists the DNS records that this host and its domains need, and whether each name server has them. Exits 1 if ' +
      'one is missing.',
    load: async () => (await import('./dns.ts')).dns,
  },
  {
    name: 'host list',
    summary: 'Lists the hosts that share the store, with their versions.',
    load: async () => (await import('./host.ts')).hostList,
  },
  {
    name: 'host adopt',
    summary: 'Lets another host deliver the mail and webhook events of a host that is lost.',
    load: async () => (await import('./adoption.ts')).hostAdopt,
  },
  {
    name: 'host drain',
    summary: 'Hands the mail and webhook events of this host to another, so that it can be taken away.',
    load: async () => (await import('./adoption.ts')).hostDrain,
  },
  {
    name: 'host forget',
    summary: 'Deletes the row of a host that does not run and will not come back.',
    load: async () => (await import('./host.ts')).hostForget,
  },
  {
    name: 'account create',
    summary:
      'Creates an account and its first API key, and prints the key to standard output. The key is shown only once.',
    load: async () => (await import('./account.ts')).accountCreate,
  },
  {
    name: 'account list',
    summary: 'Lists the accounts.',
    load: async () => (await import('./account.ts')).accountList,
  },
  {
    name: 'key create',
    summary: 'Creates an API key and prints it to standard output. The key is shown only once.',
    load: async () => (await import('./account.ts')).keyCreate,
  },
  {
    name: 'key list',
    summary:
      'Lists the API keys by their first four characters, with their last use (which a running daemon writes ' +
      'every minute). Only hashes of keys are stored.',
    load: async () => (await import('./account.ts')).keyList,
  },
  {
    name: 'key revoke',
    summary:
      'Revokes an API key, given in full or by its id from `key list`. Running daemons refuse it within seconds.',
    load: async () => (await import('./account.ts')).keyRevoke,
  },
  {
    name: 'console link',
    summary: 'Prints a link that opens the console once, within an hour, as an operator who sees all accounts.',
    load: async () => (await import('./console.ts')).consoleLink,
  },
  {
    name: 'console sessions',
    summary: 'Lists the console sessions.',
    load: async () => (await import('./console.ts')).consoleSessionList,
  },
  {
    name: 'console end',
    summary: 'Ends console sessions, by their ids from `console sessions` or all of them.',
    load: async () => (await import('./console.ts')).consoleEnd,
  },
  {
    name: 'person add',
    summary:
      'Adds a person who may use the console, and prints a link for them: it opens the console once, within an ' +
      'hour, and lets them choose a password.',
    load: async () => (await import('./console.ts')).personAdd,
  },
  {
    name: 'person invite',
    summary: 'Prints a new link for a person, who can choose another password with it.',
    load: async () => (await import('./console.ts')).personInvite,
  },
  {
    name: 'person list',
    summary: 'Lists the people who may use the console.',
    load: async () => (await import('./console.ts')).personList,
  },
  {
    name: 'person remove',
    summary: 'Removes a person and ends their sessions at once.',
    load: async () => (await import('./console.ts')).personRemove,
  },
  {
    name: 'person reset-factor',
    summary: "Removes a person's second factor, for example after a lost phone.",
    load: async () => (await import('./console.ts')).personResetFactor,
  },
  {
    name: 'person unlock',
    summary: 'Lets a person sign in again after too many wrong codes of the second factor.',
    load: async () => (await import('./console.ts')).personUnlock,
  },
  {
    name: 'ip add',
    summary: 'Adds an address to the inventory, from which accounts get dedicated addresses.',
    load: async () => (await import('./ip.ts')).ipAdd,
  },
  {
    name: 'ip list',
    summary: 'Lists all addresses: those in the inventory and those in use by accounts.',
    load: async () => (await import('./ip.ts')).ipList,
  },
  {
    name: 'ip remove',
    summary: 'Removes an address from the inventory. An address in use stays with its account.',
    load: async () => (await import('./ip.ts')).ipRemove,
  },
  {
    name: 'dkim list',
    summary: 'Lists the DKIM keys of sender domains and their states.',
    load: async () => (await import('./dkim.ts')).dkimList,
  },
  {
    name: 'dkim show',
    summary:
      'Shows the DKIM records to publish for a sender domain, or for the domains that sign mail of Postern itself.',
    load: async () => (await import('./dkim.ts')).dkimShow,
  },
  {
    name: 'dkim rotate',
    summary:
      'Creates a new DKIM key for a sender domain. The old key signs until the record of the new one is in the DNS.',
    load: async () => (await import('./dkim.ts')).dkimRotate,
  },
  {
    name: 'sender add',
    summary:
      'Adds a sender domain to an account as verified, without the mail of /senders/verify-domain, and tests its DNS.',
    load: async () => (await import('./sender.ts')).senderAdd,
  },
  {
    name: 'sender list',
    summary: 'Lists the sender domains of all accounts or of one, and whether they sign mail.',
    load: async () => (await import('./sender.ts')).senderList,
  },
  {
    name: 'domain add',
    summary: 'Adds an inbound domain to an account, as /inbound/add-domain does.',
    load: async () => (await import('./domain.ts')).domainAdd,
  },
  {
    name: 'domain list',
    summary: 'Lists the inbound domains of all accounts or of one.',
    load: async () => (await import('./domain.ts')).domainList,
  },
  {
    name: 'domain check',
    summary:
      'Checks the MX records of an inbound domain, as /inbound/check-domain does; exits 1 if none points to this ' +
      'service.',
    load: async () => (await import('./domain.ts')).domainCheck,
  },
  {
    name: 'domain remove',
    summary:
      'Removes an inbound domain and its routes; new mail for it is refused. Mail already accepted is still delivered.',
    load: async () => (await import('./domain.ts')).domainRemove,
  },
  {
    name: 'route add',
    summary:
      'Adds a route to an inbound domain, as /inbound/add-route does: mail to mailboxes that match the pattern ' +
      'is posted to the URL.',
    load: async () => (await import('./domain.ts')).routeAdd,
  },
  {
    name: 'route list',
    summary: 'Lists all routes, or those of one domain.',
    load: async () => (await import('./domain.ts')).routeList,
  },
  {
    name: 'route test',
    summary: 'Shows which route matches an address; exits 1 if mail to it would be refused.',
    load: async () => (await import('./domain.ts')).routeTest,
  },
  {
    name: 'route remove',
    summary: 'Removes a route. Mail already accepted is still delivered.',
    load: async () => (await import('./domain.ts')).routeRemove,
  },
  {
    name: 'listen',
    summary:
      'Forwards mail of a route to a port on this machine, for development, with the headers, body and ' +
      'signatures of a POST.',
    load: async () => (await import('./listen.ts')).listen,
  },
  {
    name: 'import mandrill',
    summary:
      'Imports an account: templates, lists, subaccounts, domains, routes and webhooks. Existing items are not ' +
      'changed.',
    load: async () => (await import('./import.ts')).importMandrill,
  },
  {
    name: 'store copy',
    summary:
      'Copies the store, for instance from the embedded store to MongoDB, and compares both sides. Stop every ' +
      'daemon that uses either of them first.',
    load: async () => (await import('./store.ts')).storeCopy,
  },
  {
    name: 'mail find',
    summary: 'Finds mail in the history, newest first, including mail whose content was deleted.',
    load: async () => (await import('./mail.ts')).mailFind,
  },
  {
    name: 'mail show',
    summary: 'Shows the history of one mail: its SMTP session with refusals, and every attempt.',
    load: async () => (await import('./mail.ts')).mailShow,
  },
  {
    name: 'mail refused',
    summary: 'Lists refused mail, newest first, with the meaning of each refusal and what to do.',
    load: async () => (await import('./mail.ts')).mailRefused,
  },
  {
    name: 'bounce explain',
    summary: 'Explains how a bounce is classified, and by which rule. Reads a mail from FILE, or from standard input.',
    load: async () => (await import('./bounce.ts')).bounceExplain,
  },
  {
    name: 'queue list',
    summary: 'Lists deliveries, newest first; by default those that are waiting, dead or held.',
    load: async () => (await import('./queue.ts')).queueList,
  },
  {
    name: 'queue show',
    summary: 'Shows one delivery with all its attempts. --raw prints the message, or the events of a batch.',
    load: async () => (await import('./queue.ts')).queueShow,
  },
  {
    name: 'queue endpoints',
    summary: 'Lists the endpoints with waiting deliveries, and those that are down or paused.',
    load: async () => (await import('./endpoints.ts')).queueEndpoints,
  },
  {
    name: 'queue retry',
    summary: 'Retries waiting deliveries now, except pulled mail.',
    load: async () => (await import('./queue-change.ts')).queueRetry,
  },
  {
    name: 'queue drop',
    summary: `Drops ${inWords(OPEN_STATES)} deliveries.`,
    load: async () => (await import('./queue-change.ts')).queueDrop,
  },
  {
    name: 'queue flush',
    summary: 'Retries all waiting deliveries now.',
    load: async () => (await import('./queue-change.ts')).queueFlush,
  },
  {
    name: 'replay',
    summary:
      `Delivers dead letters again, under the same ids; ${inWords(ASKED_STATES)} messages too with ` +
      `${inWords(ASKED_STATES.map((state) => `--${state}`))}, or by id.`,
    load: async () => (await import('./queue-change.ts')).replay,
  },
  {
    name: 'completion',
    summary: 'Prints the completion script for a shell. The Debian package installs all three.',
    load: async () => (await import('./completion.ts')).createCompletion(commands),
  },
];
