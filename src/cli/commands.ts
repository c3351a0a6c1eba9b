import { accountCommands } from './account.ts';
import { bounceExplain } from './bounce.ts';
import type { Command } from './command.ts';
import { createCompletion } from './completion.ts';
import { configCommands } from './config.ts';
import { consoleCommands } from './console.ts';
import { demo } from './demo.ts';
import { dkimCommands } from './dkim.ts';
import { dns } from './dns.ts';
import { doctor } from './doctor.ts';
import { domainCommands } from './domain.ts';
import { queueEndpoints } from './endpoints.ts';
import { hostCommands } from './host.ts';
import { importMandrill } from './import.ts';
import { ipCommands } from './ip.ts';
import { listen } from './listen.ts';
import { mailCommands } from './mail.ts';
import { queueList, queueShow } from './queue.ts';
import { queueDrop, queueFlush, queueRetry, replay } from './queue-change.ts';
import { senderCommands } from './sender.ts';
import { serve } from './serve.ts';
import { setup } from './setup.ts';
import { storeCopy } from './store.ts';

const all: readonly Command[] = [
  setup,
  serve,
  demo,
  ...configCommands,
  doctor,
  dns,
  ...hostCommands,
  ...accountCommands,
  ...consoleCommands,
  ...ipCommands,
  ...dkimCommands,
  ...senderCommands,
  ...domainCommands,
  listen,
  importMandrill,
  storeCopy,
  ...mailCommands,
  bounceExplain,
  queueList,
  queueShow,
  queueEndpoints,
  queueRetry,
  queueDrop,
  queueFlush,
  replay,
];

/** Every command, in the order the overview lists them. */
export const commands: readonly Command[] = [...all, createCompletion(all)];
