import { accountCreate, accountList, keyCreate, keyList, keyRevoke } from './account.ts';
import { hostAdopt, hostDrain } from './adoption.ts';
import { bounceExplain } from './bounce.ts';
import type { Command } from './command.ts';
import { createCompletion } from './completion.ts';
import { configCheck, configShow } from './config.ts';
import {
  consoleEnd,
  consoleLink,
  consoleSessionList,
  personAdd,
  personInvite,
  personList,
  personRemove,
  personResetFactor,
  personUnlock,
} from './console.ts';
import { demo } from './demo.ts';
import { dkimList, dkimRotate, dkimShow } from './dkim.ts';
import { dns } from './dns.ts';
import { doctor } from './doctor.ts';
import {
  domainAdd,
  domainCheck,
  domainList,
  domainRemove,
  routeAdd,
  routeList,
  routeRemove,
  routeTest,
} from './domain.ts';
import { queueEndpoints } from './endpoints.ts';
import { hostForget, hostList } from './host.ts';
import { importMandrill } from './import.ts';
import { ipAdd, ipList, ipRemove } from './ip.ts';
import { listen } from './listen.ts';
import { mailFind, mailRefused, mailShow } from './mail.ts';
import { queueList, queueShow } from './queue.ts';
import { queueDrop, queueFlush, queueRetry, replay } from './queue-change.ts';
import { senderAdd, senderList } from './sender.ts';
import { serve } from './serve.ts';
import { setup } from './setup.ts';
import { storeCopy } from './store.ts';

const all: readonly Command[] = [
  setup,
  serve,
  demo,
  configCheck,
  configShow,
  doctor,
  dns,
  hostList,
  hostAdopt,
  hostDrain,
  hostForget,
  accountCreate,
  accountList,
  keyCreate,
  keyList,
  keyRevoke,
  consoleLink,
  consoleSessionList,
  consoleEnd,
  personAdd,
  personInvite,
  personList,
  personRemove,
  personResetFactor,
  personUnlock,
  ipAdd,
  ipList,
  ipRemove,
  dkimList,
  dkimShow,
  dkimRotate,
  senderAdd,
  senderList,
  domainAdd,
  domainList,
  domainCheck,
  domainRemove,
  routeAdd,
  routeList,
  routeTest,
  routeRemove,
  listen,
  importMandrill,
  storeCopy,
  mailFind,
  mailShow,
  mailRefused,
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
