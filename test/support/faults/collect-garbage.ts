/**
 * Loaded before the daemon, in each of its threads: collects garbage every second, so that its memory is what it holds,
 * and not what V8 has yet to free.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');
setInterval(() => collect(), 1000).unref();
