# syntax=docker/dockerfile:1
# One image for the API, every pool of workers, the command line and the preparation of a cluster: the command differs.

FROM node:24.21.0-bookworm-slim AS base
WORKDIR /app

# Bundles the workflows for the worker. Bundling needs packages of this platform that running does not need.
FROM base AS bundle
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --ignore-scripts
COPY temporal ./temporal
COPY workflows ./workflows
# All that workflows import of other folders, but for types.
COPY domain/sends/pause-reasons.ts ./domain/sends/
COPY workers/bundle.ts ./workers/
RUN node workers/bundle.ts

# Builds the console, whose packages only its build needs.
FROM base AS console
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --ignore-scripts
COPY tsconfig.json ./
COPY console ./console
# All that the console imports of other folders, but for types.
COPY lib/mail-link.ts ./lib/
COPY lib/mail-style.ts ./lib/
COPY lib/merge-tags.ts ./lib/
COPY lib/subject.ts ./lib/
COPY api/rest/messages.ts ./api/rest/
COPY domain/audience/rules.ts ./domain/audience/
RUN node console/build.ts

# Without the bundler's compiler, and without what is for `npm start` alone: the embedded Postgres, Node, the console's packages.
FROM base AS dependencies
COPY package.json package-lock.json .npmrc ./
COPY stack/launch.mjs stack/temporal-ways.mjs ./stack/
RUN npm ci --omit=dev --omit=optional --ignore-scripts \
  && node -e 'import("./stack/launch.mjs").then(({ dropUnused }) => dropUnused("node_modules"))'

FROM base AS mailkeel
# Temporal's client takes the certificates it trusts from the system.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates \
  && rm -rf /var/lib/apt/lists/*
# Two arenas: glibc keeps freed memory in an arena for each thread, and large answers would leave some in all of them.
ENV NODE_ENV=production MALLOC_ARENA_MAX=2
COPY --from=dependencies /app/node_modules ./node_modules
COPY --from=bundle /app/built ./built
COPY --from=console /app/built/console ./built/console
COPY package.json ./
COPY client ./client
COPY config ./config
COPY db ./db
COPY lib ./lib
COPY domain ./domain
COPY temporal ./temporal
COPY activities ./activities
COPY workflows ./workflows
COPY workers ./workers
COPY api ./api
COPY app ./app
COPY stack ./stack
COPY console/build.ts ./console/
# Commands start in half the time with what the first one keeps. Later no process writes below /app. Compose mounts /images.
RUN install --directory --owner=node node_modules/.cache/mailkeel/compiled /images
USER node
RUN node app/main.mjs --help
CMD ["node", "api/main.ts"]
