import { mkdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Log } from '../base/log.ts';
import type { Settings } from '../config.ts';
import { openSpool } from '../spool/spool.ts';
import type { Spool } from '../spool/types.ts';
import type { Database } from '../store/collection.ts';
import { openEmbedded } from '../store/embedded.ts';
import { openMongo } from '../store/mongo.ts';
import { measured } from '../store/measured.ts';
import { createTokenSecret, type TokenSecret } from '../store/secrets.ts';
import { openStore, type Store } from '../store/store.ts';
import { type CountedDeps, spoolDir } from './slices.ts';

/** The store's database: MongoDB when a URL is set, else a file under data_dir. */
export function openDatabase(settings: Settings, log: Log): Promise<Database> {
  const { url, url_file: file, timeout_ms: timeoutMs } = settings.store;
  const address = file === '' ? url : readFileSync(file, 'utf8').trim();
  if (address !== '') return openMongo({ url: address, timeoutMs }, { log });
  return openEmbedded({ file: join(resolve(settings.data_dir), 'store.db'), timeoutMs }, { log });
}

/** The queue and the store. */
export async function openStorage(settings: Settings, { log, clock, ids, metrics }: CountedDeps) {
  const dir = spoolDir(settings);
  mkdirSync(dir, { recursive: true, mode: 0o750 });
  const spool = await openSpool({
    dir,
    minFreePercent: settings.spool.min_free_percent,
    minFreeBytes: settings.spool.min_free_bytes,
    maxMessageBytes: settings.smtp.max_message_bytes,
  }, { clock, log, metrics });
  const store = await openStore(measured(await openDatabase(settings, log), { clock, metrics }));
  return { spool, store, tokenSecret: createTokenSecret(store, ids) };
}

/** The queue, the store, and what signs tokens. */
export interface Storage { readonly spool: Spool; readonly store: Store; readonly tokenSecret: TokenSecret }
