import { DraftList } from "../parts/draft/draft-list.tsx";
import { DraftPage } from "../parts/draft/draft-page.tsx";

export const Newsletters = () => <DraftList kind="newsletter" />;
export const Newsletter = () => <DraftPage kind="newsletter" />;
export const Campaigns = () => <DraftList kind="campaign" />;
export const Campaign = () => <DraftPage kind="campaign" />;
