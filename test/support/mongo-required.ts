// Loaded by `npm run test:mongo`: from here on a missing server is a failure and not a line of text.
import { requireMongo } from './mongo-server.ts';

requireMongo();
