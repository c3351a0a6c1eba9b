import { type Command, Denied } from './command.ts';
import { addressOption } from './dns.ts';
import { createMachine, type Machine } from './setup/machine.ts';
import { createReport } from './setup/report.ts';

/** The command, for a machine that is examined when it runs. */
export function createSetup(machineOf: () => Machine): Command {
  return {
    options: {
      hostname: { value: 'NAME', help: 'host name of this server, such as mx.example.com' },
      domain: { value: 'DOMAIN', help: 'first domain, for mail in and out' },
      email: { value: 'ADDRESS', help: 'your mailbox on another server, for mail to postmaster' },
      address: addressOption,
      'no-https': { help: 'no certificates and no HTTPS: a web server in front does both' },
      yes: { help: 'replace values in the settings file without asking' },
      'dry-run': { help: 'change nothing; show what would be done' },
    },
    notes:
      'Asks only for values that are neither given nor known. You can run it again at any time: it skips steps that ' +
      'are done, and completes a run that failed. It accepts the terms of the certificate authority for you.\n\n' +
      '  sudo postern setup\n' +
      '  sudo postern setup --hostname mx.example.com --domain in.example.com --email you@example.net',
    async run(call, io) {
      const machine = machineOf();
      if (!machine.isRoot)
        throw new Denied('it writes settings and starts services; run it as root: sudo postern setup');
      // Examining the host loads most of the daemon.
      const { setUp } = await import('./setup/steps.ts');
      return setUp({ call, io, machine, report: createReport(call, io), isTrial: call.flag('dry-run') });
    },
  };
}

export const setup: Command = createSetup(createMachine);
