import { inWords } from '../base/tables.ts';
import { ASKED_STATES, OPEN_STATES } from '../queue/states.ts';
import type { ListedCommand } from './command.ts';

/** Every command, in the order of the overview. */
export const commands: readonly ListedCommand[] = [
  {
    name: 'setup',
    summary:
      'Makes this machine a mail host. Asks three questions, checks the machine, writes the settings, starts the ' +
      'service, adds an account, a key and a domain, and prints the DNS records to publish.',
    load: async () => (await import('./setup.ts')).setup,
  },
  {
    name: 'serve',
    summary:
      'Runs the daemon. It accepts mail by SMTP and API calls by HTTP until SIGTERM; under a service manager, SIGHUP ' +
      'reloads settings and certificates.',
    load: async () => (await import('./serve.ts')).serve,
  },
  {
    name: 'demo',
    summary: 'Shows a mail arrive by SMTP and leave as a signed POST. Needs no setup and leaves nothing behind.',
    load: async () => (await import('./demo.ts')).demo,
  },
  {
    name: 'config check',
    summary:
      'Checks all settings and the files they name. Prints every fault with its path, and exits 78 if there is any. ' +
      'Placeholder names of the example file count as faults.',
    load: async () => (await import('./config.ts')).configCheck,
  },
  {
    name: 'config show',
    summary: 'Prints every effective setting and its origin. Secrets are shown as (set).',
    load: async () => (await import('./config.ts')).configShow,
  },
  {
    name: 'doctor',
    summary:
      'Checks everything that a mail host needs. Explains how to fix each problem, and exits 1 if it finds a fault.',
    load: async () => (await import('./doctor.ts')).doctor,
  },
  {
    name: 'dns',
    summary:
      'Lists the DNS records that your domains need. Covers this host too, shows whether each name server has them, ' +
      'and exits 1 if one is missing.',
    load: async () => (await import('./dns.ts')).dns,
  },
  {
    name: 'host list',
    summary: 'Lists the hosts that share the store, with their versions.',
    load: async () => (await import('./host.ts')).hostList,
  },
  {
    name: 'host adopt',
    summary: 'Hands the mail of a lost host to another host. That host delivers its mail and its webhook events.',
    load: async () => (await import('./adoption.ts')).hostAdopt,
  },
  {
    name: 'host drain',
    summary:
      'Hands the mail of this host to another host. Run it before you decommission this host; webhook events are ' +
      'handed over too.',
    load: async () => (await import('./adoption.ts')).hostDrain,
  },
  {
    name: 'host forget',
    summary: 'Removes a decommissioned host from the list of hosts.',
    load: async () => (await import('./host.ts')).hostForget,
  },
  {
    name: 'account create',
    summary: 'Creates an account and its first API key. Prints the key to standard output; it is shown only once.',
    load: async () => (await import('./account.ts')).accountCreate,
  },
  {
    name: 'account list',
    summary: 'Lists the accounts.',
    load: async () => (await import('./account.ts')).accountList,
  },
  {
    name: 'key create',
    summary: 'Creates an API key. Prints it to standard output; it is shown only once.',
    load: async () => (await import('./account.ts')).keyCreate,
  },
  {
    name: 'key list',
    summary:
      'Lists the API keys of an account. Shows their first four characters and their last use, which a running ' +
      'daemon writes every minute. Only hashes of keys are stored.',
    load: async () => (await import('./account.ts')).keyList,
  },
  {
    name: 'key revoke',
    summary:
      'Revokes an API key, given in full or by its id. Running daemons refuse it within seconds. `key list` shows ' +
      'the ids.',
    load: async () => (await import('./account.ts')).keyRevoke,
  },
  {
    name: 'console link',
    summary:
      'Prints a link that opens the console as an operator. It works once, within an hour. An operator sees all ' +
      'accounts.',
    load: async () => (await import('./console.ts')).consoleLink,
  },
  {
    name: 'console sessions',
    summary: 'Lists the console sessions.',
    load: async () => (await import('./console.ts')).consoleSessionList,
  },
  {
    name: 'console end',
    summary: 'Ends console sessions. Pass their ids from `console sessions`, or --all.',
    load: async () => (await import('./console.ts')).consoleEnd,
  },
  {
    name: 'person add',
    summary:
      'Adds a person who may use the console. Prints a link for them, which opens the console once, within an hour, ' +
      'and lets them choose a password.',
    load: async () => (await import('./console.ts')).personAdd,
  },
  {
    name: 'person invite',
    summary: 'Prints a new link for a person. They can choose a new password with it.',
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
    summary: 'Removes the second factor of a person. For example after they lose their phone.',
    load: async () => (await import('./console.ts')).personResetFactor,
  },
  {
    name: 'person unlock',
    summary: 'Unlocks a person. Too many wrong codes of the second factor lock them out.',
    load: async () => (await import('./console.ts')).personUnlock,
  },
  {
    name: 'ip add',
    summary: 'Adds an address to the inventory. Accounts get their dedicated addresses from it.',
    load: async () => (await import('./ip.ts')).ipAdd,
  },
  {
    name: 'ip list',
    summary: 'Lists all dedicated addresses. Shows those in the inventory and those in use by accounts.',
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
      'Shows the DKIM records to publish. For a sender domain, or without DOMAIN, for the domains that sign mail ' +
      'from Postern itself.',
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
      'Adds a sender domain to an account as verified. Skips the verification mail of /senders/verify-domain, and ' +
      'tests the DNS of the domain.',
    load: async () => (await import('./sender.ts')).senderAdd,
  },
  {
    name: 'sender list',
    summary: 'Lists the sender domains, and whether they sign mail. Lists those of all accounts or of one.',
    load: async () => (await import('./sender.ts')).senderList,
  },
  {
    name: 'domain add',
    summary: 'Adds an inbound domain to an account. The same as /inbound/add-domain.',
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
      'Checks the MX records of an inbound domain. The same as /inbound/check-domain; exits 1 if no record points to ' +
      'this service.',
    load: async () => (await import('./domain.ts')).domainCheck,
  },
  {
    name: 'domain remove',
    summary:
      'Removes an inbound domain and its routes. New mail for it is refused; mail already accepted is still delivered.',
    load: async () => (await import('./domain.ts')).domainRemove,
  },
  {
    name: 'route add',
    summary:
      'Adds a route to an inbound domain. Mail to mailboxes that match the pattern is posted to the URL. The same as ' +
      '/inbound/add-route.',
    load: async () => (await import('./domain.ts')).routeAdd,
  },
  {
    name: 'route list',
    summary: 'Lists all routes, or those of one domain.',
    load: async () => (await import('./domain.ts')).routeList,
  },
  {
    name: 'route test',
    summary: 'Shows which route matches an address. Exits 1 if mail to it would be refused.',
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
      'Forwards mail of a route to a port on this machine. For development; requests have the headers, body and ' +
      'signatures of a POST.',
    load: async () => (await import('./listen.ts')).listen,
  },
  {
    name: 'import mandrill',
    summary:
      'Imports a Mandrill account. Copies templates, lists, subaccounts, domains, routes and webhooks; existing ' +
      'items are not changed.',
    load: async () => (await import('./import.ts')).importMandrill,
  },
  {
    name: 'store copy',
    summary:
      'Copies the store and compares both sides. For instance from the embedded store to MongoDB. Stop every daemon ' +
      'that uses either of them first.',
    load: async () => (await import('./store.ts')).storeCopy,
  },
  {
    name: 'mail find',
    summary: 'Finds mail in the history, newest first. Includes mail whose content was deleted.',
    load: async () => (await import('./mail.ts')).mailFind,
  },
  {
    name: 'mail show',
    summary: 'Shows the history of one mail. Includes its SMTP session with refusals, and every attempt.',
    load: async () => (await import('./mail.ts')).mailShow,
  },
  {
    name: 'mail refused',
    summary: 'Lists refused mail, newest first. Explains each refusal and what to do.',
    load: async () => (await import('./mail.ts')).mailRefused,
  },
  {
    name: 'bounce explain',
    summary: 'Explains how a bounce is classified, and by which rule. Reads a mail from FILE, or from standard input.',
    load: async () => (await import('./bounce.ts')).bounceExplain,
  },
  {
    name: 'queue list',
    summary: 'Lists deliveries, newest first. By default those that are waiting, dead or held.',
    load: async () => (await import('./queue.ts')).queueList,
  },
  {
    name: 'queue show',
    summary: 'Shows one delivery with all its attempts. --raw prints the message, or the events of a batch.',
    load: async () => (await import('./queue.ts')).queueShow,
  },
  {
    name: 'queue endpoints',
    summary: 'Lists the endpoints with waiting deliveries. Also those that are down or paused.',
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
      `Delivers dead letters again, under the same ids. Delivers ${inWords(ASKED_STATES)} messages too, with ` +
      `${inWords(ASKED_STATES.map((state) => `--${state}`))} or by id.`,
    load: async () => (await import('./queue-change.ts')).replay,
  },
  {
    name: 'completion',
    summary: 'Prints the completion script for a shell. The Debian package installs all three.',
    load: async () => (await import('./completion.ts')).createCompletion(commands),
  },
];
